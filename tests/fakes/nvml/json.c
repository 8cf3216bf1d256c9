#include "json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void skip_space(json_t *json)
{
    while (isspace((unsigned char)*json->at))
        json->at++;
}

static int take(json_t *json, char want)
{
    skip_space(json);
    if (*json->at != want)
        return 0;
    json->at++;
    return 1;
}

static int take_word(json_t *json, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(json->at, word, length) != 0)
        return 0;
    json->at += length;
    return 1;
}

void json_string(json_t *json, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    if (!take(json, '"')) {
        json->bad = 1;
        return;
    }
    while (*json->at && *json->at != '"') {
        if (*json->at == '\\' && json->at[1])
            json->at++;
        if (used + 1 < size)
            out[used++] = *json->at;
        json->at++;
    }
    out[used] = 0;
    if (!take(json, '"'))
        json->bad = 1;
}

double json_number(json_t *json)
{
    char *end;
    double value;
    skip_space(json);
    if (take_word(json, "true"))
        return 1;
    if (take_word(json, "false") || take_word(json, "null"))
        return 0;
    value = strtod(json->at, &end);
    if (end == json->at)
        json->bad = 1;
    json->at = end;
    return value;
}

void json_object(json_t *json, json_member_fn member, void *context)
{
    char key[64];
    if (!take(json, '{')) {
        json->bad = 1;
        return;
    }
    if (take(json, '}'))
        return;
    do {
        json_string(json, key, sizeof key);
        if (!take(json, ':'))
            json->bad = 1;
        if (json->bad)
            return;
        member(json, key, context);
    } while (!json->bad && take(json, ','));
    if (!take(json, '}'))
        json->bad = 1;
}

void json_array(json_t *json, json_element_fn element, void *context)
{
    if (!take(json, '[')) {
        json->bad = 1;
        return;
    }
    if (take(json, ']'))
        return;
    do
        element(json, context);
    while (!json->bad && take(json, ','));
    if (!take(json, ']'))
        json->bad = 1;
}

static void skip_member(json_t *json, const char *key, void *context)
{
    (void)key;
    (void)context;
    json_skip(json);
}

static void skip_element(json_t *json, void *context)
{
    (void)context;
    json_skip(json);
}

void json_skip(json_t *json)
{
    char ignored[8];
    skip_space(json);
    if (*json->at == '"')
        json_string(json, ignored, sizeof ignored);
    else if (*json->at == '{')
        json_object(json, skip_member, NULL);
    else if (*json->at == '[')
        json_array(json, skip_element, NULL);
    else
        json_number(json);
}
