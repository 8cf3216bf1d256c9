/* A scriptable stand-in for libnvidia-ml.so.1, for tests on machines without a GPU.
 *
 *   gcc -O2 -shared -fPIC -fvisibility=hidden -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 *.c -lpthread
 *   FAKE_NVML_STATE=/path/state.json LD_LIBRARY_PATH=/folder python -c 'import pynvml; pynvml.nvmlInit()'
 *
 * -DOLD_DRIVER leaves out the symbols that a driver before R510 does not have.
 *
 * The state file is JSON and is read again whenever its inode, size or time changes, so a test scripts
 * the GPUs by writing a new file and renaming it over the old one. All members are optional:
 *
 *   {"driver": "575.57.08", "proc_dir": "/path/holders", "init_error": 0, "init_hang_ms": 0,
 *    "gpus": [{"util": 100, "memutil": 0, "used": 0, "total": 85899345920, "temp": 41, "power": 120000,
 *              "limit": 700000, "energy": 0, "energy_at": 1760000000.5, "clock_sm": 1980, "clock_mem": 2619,
 *              "pcie_tx": 0, "pcie_rx": 0, "throttle": 0, "pstate": 0, "ecc_corr": 0, "ecc_unc": 0,
 *              "remap_pending": 0, "remap_fail": 0, "lost": 0, "hang_ms": 0, "name": "...", "uuid": "...",
 *              "err": {"nvmlDeviceGetUtilizationRates": 3}, "procs": [{"pid": 123, "used": 1048576}],
 *              "xid": [79]}]}
 *
 * Units: percent, bytes, degrees Celsius, milliwatts, millijoules, MHz, kB/s.
 * proc_dir: a file named GPU.PID (content: bytes) is a further process. An entry whose process has ended
 * or is a zombie is not reported and its memory is free, as the driver frees what a dead process held.
 * xid: each entry appended to the list is delivered once to an event set.
 */
#define _GNU_SOURCE
#include "state.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define NVML __attribute__((visibility("default"))) int

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15
};

static int initialized;

/* A device handle is the address of its slot. */
static char slots[MAX_GPUS];

static int slot_of(const void *handle)
{
    const char *slot = handle;
    return slot >= slots && slot < slots + MAX_GPUS ? (int)(slot - slots) : -1;
}

/* Every device call passes here: it answers errors, loss and hangs as the state asks for them. */
static int look(const void *handle, const char *function, state_t *state, gpu_t *gpu)
{
    int index = slot_of(handle), result = SUCCESS;
    if (!initialized)
        return UNINITIALIZED;
    state_now(state);
    if (index < 0 || index >= state->gpu_count)
        return INVALID_ARGUMENT;
    *gpu = state->gpus[index];
    if (gpu->hang_ms)
        sleep_ms(gpu->hang_ms);
    if (gpu->lost)
        result = GPU_IS_LOST;
    for (int i = 0; i < gpu->error_count; i++)
        if (strcmp(gpu->errors[i].function, function) == 0 || strcmp(gpu->errors[i].function, "*") == 0)
            result = gpu->errors[i].code;
    return result;
}

/* Opens a device call with `state` and `gpu` in scope. */
#define LOOK(handle)                                                                                          \
    state_t state;                                                                                            \
    gpu_t gpu;                                                                                                \
    int result = look(handle, __func__, &state, &gpu);                                                        \
    if (result != SUCCESS)                                                                                    \
    return result

#define ANSWER(name, type, expression)                                                                        \
    NVML name(void *handle, type *out)                                                                        \
    {                                                                                                         \
        LOOK(handle);                                                                                         \
        *out = (type)(expression);                                                                            \
        return SUCCESS;                                                                                       \
    }

#define ANSWER_TEXT(name, format, value)                                                                      \
    NVML name(void *handle, char *out, unsigned size)                                                         \
    {                                                                                                         \
        LOOK(handle);                                                                                         \
        snprintf(out, size, format, value);                                                                   \
        return SUCCESS;                                                                                       \
    }

/* ---- library ----------------------------------------------------------------------------------- */

NVML nvmlInitWithFlags(unsigned flags)
{
    state_t state;
    int known = state_now(&state);
    (void)flags;
    if (state.init_hang_ms)
        sleep_ms(state.init_hang_ms);
    if (state.init_error)
        return state.init_error;
    if (!known)
        return DRIVER_NOT_LOADED;
    initialized++;
    return SUCCESS;
}

NVML nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
NVML nvmlInit(void) { return nvmlInitWithFlags(0); }

NVML nvmlShutdown(void)
{
    if (!initialized)
        return UNINITIALIZED;
    initialized--;
    return SUCCESS;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int code)
{
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

NVML nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    state_t state;
    if (!initialized)
        return UNINITIALIZED;
    state_now(&state);
    snprintf(out, size, "%s", state.driver);
    return SUCCESS;
}

NVML nvmlSystemGetNVMLVersion(char *out, unsigned size)
{
    state_t state;
    state_now(&state);
    snprintf(out, size, "12.%s", state.driver);
    return SUCCESS;
}

NVML nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    *out = 12090;
    return SUCCESS;
}

NVML nvmlSystemGetCudaDriverVersion(int *out) { return nvmlSystemGetCudaDriverVersion_v2(out); }

NVML nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size)
{
    char path[64];
    FILE *file;
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    file = fopen(path, "r");
    if (!file)
        return NOT_FOUND;
    if (!fgets(out, (int)size, file))
        out[0] = 0;
    out[strcspn(out, "\n")] = 0;
    fclose(file);
    return SUCCESS;
}

/* ---- devices ----------------------------------------------------------------------------------- */

NVML nvmlDeviceGetCount_v2(unsigned *out)
{
    state_t state;
    if (!initialized)
        return UNINITIALIZED;
    state_now(&state);
    *out = (unsigned)state.gpu_count;
    return SUCCESS;
}

NVML nvmlDeviceGetCount(unsigned *out) { return nvmlDeviceGetCount_v2(out); }

NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{
    state_t state;
    if (!initialized)
        return UNINITIALIZED;
    state_now(&state);
    if (index >= (unsigned)state.gpu_count)
        return INVALID_ARGUMENT;
    *out = &slots[index];
    return state.gpus[index].lost ? GPU_IS_LOST : SUCCESS;
}

NVML nvmlDeviceGetHandleByIndex(unsigned index, void **out) { return nvmlDeviceGetHandleByIndex_v2(index, out); }

NVML nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
    state_t state;
    if (!initialized)
        return UNINITIALIZED;
    state_now(&state);
    for (int i = 0; i < state.gpu_count; i++) {
        if (strcmp(uuid, state.gpus[i].uuid) != 0)
            continue;
        *out = &slots[i];
        return state.gpus[i].lost ? GPU_IS_LOST : SUCCESS;
    }
    return NOT_FOUND;
}

ANSWER(nvmlDeviceGetIndex, unsigned, gpu.index)
ANSWER(nvmlDeviceGetMinorNumber, unsigned, gpu.index)
ANSWER_TEXT(nvmlDeviceGetName, "%s", gpu.name)
ANSWER_TEXT(nvmlDeviceGetUUID, "%s", gpu.uuid)
ANSWER_TEXT(nvmlDeviceGetSerial, "%010d", gpu.index)

typedef struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info_t;

NVML nvmlDeviceGetPciInfo_v3(void *handle, pci_info_t *out)
{
    LOOK(handle);
    memset(out, 0, sizeof *out);
    out->bus = 0x10u + (unsigned)gpu.index;
    out->device_id = 0x233010de;
    snprintf(out->legacy_bus_id, sizeof out->legacy_bus_id, "0000:%02X:00.0", out->bus);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return SUCCESS;
}

typedef struct {
    unsigned gpu_pct, memory_pct;
} utilization_t;

NVML nvmlDeviceGetUtilizationRates(void *handle, utilization_t *out)
{
    LOOK(handle);
    out->gpu_pct = (unsigned)gpu.util_pct;
    out->memory_pct = (unsigned)gpu.memory_util_pct;
    return SUCCESS;
}

typedef struct {
    u64 total, free, used;
} memory_t;

NVML nvmlDeviceGetMemoryInfo(void *handle, memory_t *out)
{
    LOOK(handle);
    out->total = gpu.total_bytes;
    out->used = state_used_bytes(&state, &gpu);
    out->free = out->total - out->used;
    return SUCCESS;
}

NVML nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *out)
{
    LOOK(handle);
    (void)sensor;
    *out = (unsigned)gpu.temperature_c;
    return SUCCESS;
}

ANSWER(nvmlDeviceGetPowerUsage, unsigned, gpu.power_mw)
ANSWER(nvmlDeviceGetEnforcedPowerLimit, unsigned, gpu.limit_mw)
ANSWER(nvmlDeviceGetPowerManagementLimit, unsigned, gpu.limit_mw)
ANSWER(nvmlDeviceGetTotalEnergyConsumption, u64, state_energy_mj(&gpu))
ANSWER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, gpu.throttle_reasons)
ANSWER(nvmlDeviceGetPerformanceState, int, gpu.performance_state)
ANSWER(nvmlDeviceGetPersistenceMode, int, 1)
ANSWER(nvmlDeviceGetComputeMode, int, 0)

enum { CLOCK_MEMORY = 2 };

NVML nvmlDeviceGetClockInfo(void *handle, int clock, unsigned *out)
{
    LOOK(handle);
    *out = (unsigned)(clock == CLOCK_MEMORY ? gpu.clock_memory_mhz : gpu.clock_sm_mhz);
    return SUCCESS;
}

NVML nvmlDeviceGetMaxClockInfo(void *handle, int clock, unsigned *out)
{
    LOOK(handle);
    *out = clock == CLOCK_MEMORY ? 2619 : 1980;
    return SUCCESS;
}

NVML nvmlDeviceGetPcieThroughput(void *handle, int counter, unsigned *out)
{
    LOOK(handle);
    *out = (unsigned)(counter == 0 ? gpu.pcie_tx_kb_s : gpu.pcie_rx_kb_s);
    return SUCCESS;
}

NVML nvmlDeviceGetEccMode(void *handle, int *now, int *pending)
{
    LOOK(handle);
    *now = *pending = 1;
    return SUCCESS;
}

NVML nvmlDeviceGetTotalEccErrors(void *handle, int uncorrected, int counter, u64 *out)
{
    LOOK(handle);
    (void)counter;
    *out = uncorrected ? gpu.ecc_uncorrected : gpu.ecc_corrected;
    return SUCCESS;
}

NVML nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                               unsigned *failed)
{
    LOOK(handle);
    *corrected = *uncorrected = 0;
    *pending = (unsigned)gpu.remap_pending;
    *failed = (unsigned)gpu.remap_failed;
    return SUCCESS;
}

NVML nvmlDeviceGetFanSpeed(void *handle, unsigned *out)
{
    LOOK(handle);
    (void)out;
    return NOT_SUPPORTED; /* a data centre module has no fan */
}

NVML nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending)
{
    LOOK(handle);
    *now = *pending = 0;
    return SUCCESS;
}

/* ---- processes --------------------------------------------------------------------------------- */

typedef struct {
    unsigned pid;
    u64 used_bytes;
} process_v1_t;

typedef struct {
    unsigned pid;
    u64 used_bytes;
    unsigned gpu_instance, compute_instance;
} process_v2_t;

static int list_processes(void *handle, const char *function, unsigned *count, void *out, int version)
{
    state_t state;
    gpu_t gpu;
    process_t processes[MAX_PROCESSES];
    unsigned found;
    int result = look(handle, function, &state, &gpu);
    if (result != SUCCESS)
        return result;
    found = (unsigned)state_processes(&state, &gpu, processes, MAX_PROCESSES);
    if (found > 0 && (!out || *count < found)) {
        *count = found;
        return INSUFFICIENT_SIZE;
    }
    for (unsigned i = 0; i < found; i++) {
        if (version == 1)
            ((process_v1_t *)out)[i] = (process_v1_t){processes[i].pid, processes[i].used_bytes};
        else
            ((process_v2_t *)out)[i] = (process_v2_t){processes[i].pid, processes[i].used_bytes, ~0u, ~0u};
    }
    *count = found;
    return SUCCESS;
}

NVML nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, void *out)
{
    return list_processes(handle, __func__, count, out, 1);
}

NVML nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, void *out)
{
    return list_processes(handle, __func__, count, out, 2);
}

static int no_processes(void *handle, const char *function, unsigned *count)
{
    state_t state;
    gpu_t gpu;
    int result = look(handle, function, &state, &gpu);
    if (result == SUCCESS)
        *count = 0;
    return result;
}

NVML nvmlDeviceGetGraphicsRunningProcesses(void *handle, unsigned *count, void *out)
{
    (void)out;
    return no_processes(handle, __func__, count);
}

NVML nvmlDeviceGetGraphicsRunningProcesses_v2(void *handle, unsigned *count, void *out)
{
    (void)out;
    return no_processes(handle, __func__, count);
}

/* ---- what a driver before R510 lacks ----------------------------------------------------------- */

#ifndef OLD_DRIVER
typedef struct {
    unsigned version;
    u64 total, reserved, free, used;
} memory_v2_t;

NVML nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *out)
{
    LOOK(handle);
    out->total = gpu.total_bytes;
    out->reserved = 500u << 20;
    out->used = state_used_bytes(&state, &gpu);
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}

typedef struct {
    unsigned version;
    int sensor, celsius;
} temperature_v1_t;

NVML nvmlDeviceGetTemperatureV(void *handle, temperature_v1_t *out)
{
    LOOK(handle);
    out->celsius = (int)gpu.temperature_c;
    return SUCCESS;
}

ANSWER(nvmlDeviceGetCurrentClocksEventReasons, u64, gpu.throttle_reasons)

NVML nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, void *out)
{
    return list_processes(handle, __func__, count, out, 3);
}

NVML nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, void *out)
{
    (void)out;
    return no_processes(handle, __func__, count);
}
#endif

/* ---- events ------------------------------------------------------------------------------------ */

enum { EVENT_XID = 8, POLL_MS = 20 };

typedef struct {
    void *device;
    u64 type, data;
    unsigned gpu_instance, compute_instance;
} event_t;

static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;
static u64 registered[MAX_GPUS];
static int delivered[MAX_GPUS];

NVML nvmlEventSetCreate(void **out)
{
    static char the_set;
    if (!initialized)
        return UNINITIALIZED;
    pthread_mutex_lock(&event_lock);
    memset(registered, 0, sizeof registered);
    pthread_mutex_unlock(&event_lock);
    *out = &the_set;
    return SUCCESS;
}

NVML nvmlEventSetFree(void *set)
{
    (void)set;
    return SUCCESS;
}

ANSWER(nvmlDeviceGetSupportedEventTypes, u64, 0x1f)

NVML nvmlDeviceRegisterEvents(void *handle, u64 types, void *set)
{
    LOOK(handle);
    (void)set;
    pthread_mutex_lock(&event_lock);
    registered[gpu.index] |= types;
    pthread_mutex_unlock(&event_lock);
    return SUCCESS;
}

static int next_event(event_t *out)
{
    state_t state;
    int found = 0;
    state_now(&state);
    pthread_mutex_lock(&event_lock);
    for (int i = 0; i < state.gpu_count && !found; i++) {
        if (!(registered[i] & EVENT_XID) || delivered[i] >= state.gpus[i].xid_count)
            continue;
        memset(out, 0, sizeof *out);
        out->device = &slots[i];
        out->type = EVENT_XID;
        out->data = (u64)state.gpus[i].xids[delivered[i]++];
        found = 1;
    }
    pthread_mutex_unlock(&event_lock);
    return found;
}

NVML nvmlEventSetWait_v2(void *set, event_t *out, unsigned timeout_ms)
{
    (void)set;
    if (!initialized)
        return UNINITIALIZED;
    for (unsigned waited_ms = 0;; waited_ms += POLL_MS) {
        if (next_event(out))
            return SUCCESS;
        if (waited_ms >= timeout_ms)
            return TIMEOUT;
        sleep_ms(POLL_MS);
    }
}
