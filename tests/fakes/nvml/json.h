/* A very small JSON reader: enough for the state file, and it rejects what it does not understand. */
#ifndef FAKE_NVML_JSON_H
#define FAKE_NVML_JSON_H

#include <stddef.h>

typedef struct {
    const char *at;
    int bad; /* set at the first error and never cleared */
} json_t;

/* Called for each member of an object; it must consume the value. */
typedef void (*json_member_fn)(json_t *json, const char *key, void *context);
/* Called for each element of an array; it must consume the element. */
typedef void (*json_element_fn)(json_t *json, void *context);

void json_object(json_t *json, json_member_fn member, void *context);
void json_array(json_t *json, json_element_fn element, void *context);
void json_string(json_t *json, char *out, size_t size);
double json_number(json_t *json); /* true is 1; false and null are 0 */
void json_skip(json_t *json);

#endif
