#define _GNU_SOURCE
#include "state.h"

#include "json.h"

#include <dirent.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static state_t current;
static int loaded;
static struct stat seen;

/* ---- the file ---------------------------------------------------------------------------------- */

typedef struct {
    const char *key;
    size_t offset;
} field_t;

static const field_t GPU_FIELDS[] = {
    {"util", offsetof(gpu_t, util_pct)},
    {"memutil", offsetof(gpu_t, memory_util_pct)},
    {"total", offsetof(gpu_t, total_bytes)},
    {"used", offsetof(gpu_t, used_bytes)},
    {"temp", offsetof(gpu_t, temperature_c)},
    {"power", offsetof(gpu_t, power_mw)},
    {"limit", offsetof(gpu_t, limit_mw)},
    {"energy", offsetof(gpu_t, energy_mj)},
    {"clock_sm", offsetof(gpu_t, clock_sm_mhz)},
    {"clock_mem", offsetof(gpu_t, clock_memory_mhz)},
    {"throttle", offsetof(gpu_t, throttle_reasons)},
    {"pstate", offsetof(gpu_t, performance_state)},
    {"pcie_tx", offsetof(gpu_t, pcie_tx_kb_s)},
    {"pcie_rx", offsetof(gpu_t, pcie_rx_kb_s)},
    {"ecc_corr", offsetof(gpu_t, ecc_corrected)},
    {"ecc_unc", offsetof(gpu_t, ecc_uncorrected)},
    {"remap_pending", offsetof(gpu_t, remap_pending)},
    {"remap_fail", offsetof(gpu_t, remap_failed)},
    {"lost", offsetof(gpu_t, lost)},
    {"hang_ms", offsetof(gpu_t, hang_ms)},
};

static void read_process_member(json_t *json, const char *key, void *context)
{
    process_t *process = context;
    if (strcmp(key, "pid") == 0)
        process->pid = (unsigned)json_number(json);
    else if (strcmp(key, "used") == 0)
        process->used_bytes = (u64)json_number(json);
    else
        json_skip(json);
}

static void read_process(json_t *json, void *context)
{
    gpu_t *gpu = context;
    process_t process = {0, 0};
    json_object(json, read_process_member, &process);
    if (gpu->process_count < MAX_PROCESSES)
        gpu->processes[gpu->process_count++] = process;
}

static void read_xid(json_t *json, void *context)
{
    gpu_t *gpu = context;
    int xid = (int)json_number(json);
    if (gpu->xid_count < MAX_XIDS)
        gpu->xids[gpu->xid_count++] = xid;
}

static void read_error(json_t *json, const char *key, void *context)
{
    gpu_t *gpu = context;
    int code = (int)json_number(json);
    if (gpu->error_count >= MAX_ERRORS)
        return;
    snprintf(gpu->errors[gpu->error_count].function, sizeof gpu->errors[0].function, "%s", key);
    gpu->errors[gpu->error_count++].code = code;
}

static void read_gpu_member(json_t *json, const char *key, void *context)
{
    gpu_t *gpu = context;
    for (size_t i = 0; i < sizeof GPU_FIELDS / sizeof *GPU_FIELDS; i++) {
        if (strcmp(key, GPU_FIELDS[i].key) != 0)
            continue;
        *(u64 *)((char *)gpu + GPU_FIELDS[i].offset) = (u64)json_number(json);
        return;
    }
    if (strcmp(key, "name") == 0)
        json_string(json, gpu->name, sizeof gpu->name);
    else if (strcmp(key, "uuid") == 0)
        json_string(json, gpu->uuid, sizeof gpu->uuid);
    else if (strcmp(key, "energy_at") == 0)
        gpu->energy_at_s = json_number(json);
    else if (strcmp(key, "err") == 0)
        json_object(json, read_error, gpu);
    else if (strcmp(key, "procs") == 0)
        json_array(json, read_process, gpu);
    else if (strcmp(key, "xid") == 0)
        json_array(json, read_xid, gpu);
    else
        json_skip(json);
}

static void read_gpu(json_t *json, void *context)
{
    state_t *state = context;
    gpu_t gpu;
    memset(&gpu, 0, sizeof gpu);
    gpu.index = state->gpu_count;
    gpu.total_bytes = 80ull << 30;
    gpu.temperature_c = 35;
    gpu.power_mw = 75000;
    gpu.limit_mw = 700000;
    gpu.clock_sm_mhz = 1980;
    gpu.clock_memory_mhz = 2619;
    snprintf(gpu.name, sizeof gpu.name, "NVIDIA H100 80GB HBM3 (fake)");
    snprintf(gpu.uuid, sizeof gpu.uuid, "GPU-fake0000-0000-0000-0000-%012d", gpu.index);
    json_object(json, read_gpu_member, &gpu);
    if (state->gpu_count < MAX_GPUS)
        state->gpus[state->gpu_count++] = gpu;
}

static void read_state_member(json_t *json, const char *key, void *context)
{
    state_t *state = context;
    if (strcmp(key, "driver") == 0)
        json_string(json, state->driver, sizeof state->driver);
    else if (strcmp(key, "proc_dir") == 0)
        json_string(json, state->process_dir, sizeof state->process_dir);
    else if (strcmp(key, "init_error") == 0)
        state->init_error = (int)json_number(json);
    else if (strcmp(key, "init_hang_ms") == 0)
        state->init_hang_ms = (u64)json_number(json);
    else if (strcmp(key, "gpus") == 0)
        json_array(json, read_gpu, state);
    else
        json_skip(json);
}

static double seconds_of(struct timespec time) { return (double)time.tv_sec + (double)time.tv_nsec / 1e9; }

static char *read_file(const char *path, struct stat *status)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    if (!file)
        return NULL;
    if (fstat(fileno(file), status) == 0 && (text = malloc((size_t)status->st_size + 1)) != NULL)
        text[fread(text, 1, (size_t)status->st_size, file)] = 0;
    fclose(file);
    return text;
}

/* A file that cannot be read or understood leaves the last good state in force. */
static void reload(void)
{
    static state_t fresh;
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat status;
    json_t json;
    char *text;
    if (!path || stat(path, &status) != 0)
        return;
    if (loaded && status.st_ino == seen.st_ino && status.st_size == seen.st_size &&
        memcmp(&status.st_mtim, &seen.st_mtim, sizeof status.st_mtim) == 0)
        return;
    text = read_file(path, &status);
    if (!text)
        return;
    memset(&fresh, 0, sizeof fresh);
    snprintf(fresh.driver, sizeof fresh.driver, "575.57.08");
    json.at = text;
    json.bad = 0;
    json_object(&json, read_state_member, &fresh);
    free(text);
    if (json.bad) {
        fprintf(stderr, "fake nvml: cannot read %s\n", path);
        return;
    }
    for (int i = 0; i < fresh.gpu_count; i++)
        if (fresh.gpus[i].energy_at_s == 0)
            fresh.gpus[i].energy_at_s = seconds_of(status.st_mtim);
    current = fresh;
    seen = status;
    loaded = 1;
}

int state_now(state_t *out)
{
    int known;
    pthread_mutex_lock(&lock);
    reload();
    *out = current;
    known = loaded;
    pthread_mutex_unlock(&lock);
    return known;
}

/* ---- what follows from it ---------------------------------------------------------------------- */

static int alive(unsigned pid)
{
    char path[64], text[512], *end;
    size_t length;
    FILE *file;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    file = fopen(path, "r");
    if (!file)
        return 0;
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    end = strrchr(text, ')');
    /* A zombie has no memory any more, neither on the host nor on the device. */
    return end && end[1] && end[2] != 'Z' && end[2] != 'X';
}

static u64 held_bytes(const char *folder, const char *entry)
{
    char path[1024];
    u64 bytes = 0;
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", folder, entry);
    file = fopen(path, "r");
    if (!file)
        return 0;
    if (fscanf(file, "%llu", &bytes) != 1)
        bytes = 0;
    fclose(file);
    return bytes;
}

static int living_holders(const state_t *state, const gpu_t *gpu, process_t *out, int max)
{
    DIR *folder = state->process_dir[0] ? opendir(state->process_dir) : NULL;
    struct dirent *entry;
    int count = 0;
    if (!folder)
        return 0;
    while (count < max && (entry = readdir(folder)) != NULL) {
        unsigned index, pid;
        if (sscanf(entry->d_name, "%u.%u", &index, &pid) != 2 || (int)index != gpu->index || !alive(pid))
            continue;
        out[count].pid = pid;
        out[count++].used_bytes = held_bytes(state->process_dir, entry->d_name);
    }
    closedir(folder);
    return count;
}

int state_processes(const state_t *state, const gpu_t *gpu, process_t *out, int max)
{
    int count = gpu->process_count < max ? gpu->process_count : max;
    memcpy(out, gpu->processes, (size_t)count * sizeof *out);
    return count + living_holders(state, gpu, out + count, max - count);
}

u64 state_used_bytes(const state_t *state, const gpu_t *gpu)
{
    process_t holders[MAX_PROCESSES];
    int count = living_holders(state, gpu, holders, MAX_PROCESSES);
    u64 bytes = gpu->used_bytes;
    for (int i = 0; i < count; i++)
        bytes += holders[i].used_bytes;
    return bytes;
}

u64 state_energy_mj(const gpu_t *gpu)
{
    struct timespec now;
    double passed_s;
    clock_gettime(CLOCK_REALTIME, &now);
    passed_s = seconds_of(now) - gpu->energy_at_s;
    return gpu->energy_mj + (passed_s > 0 ? (u64)(passed_s * (double)gpu->power_mw) : 0);
}

void sleep_ms(u64 milliseconds)
{
    struct timespec pause = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000L};
    nanosleep(&pause, NULL);
}
