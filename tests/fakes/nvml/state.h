/* What the pretended GPUs look like now, read from the file named by FAKE_NVML_STATE. */
#ifndef FAKE_NVML_STATE_H
#define FAKE_NVML_STATE_H

enum { MAX_GPUS = 16, MAX_PROCESSES = 64, MAX_ERRORS = 16, MAX_XIDS = 32 };

typedef unsigned long long u64;

typedef struct {
    unsigned pid;
    u64 used_bytes;
} process_t;

typedef struct {
    char function[64]; /* "*" is every function */
    int code;
} forced_error_t;

typedef struct {
    int index;
    char name[64], uuid[64];
    u64 util_pct, memory_util_pct, total_bytes, used_bytes, temperature_c, power_mw, limit_mw;
    u64 energy_mj;    /* at energy_at_s; grows from there by the power */
    double energy_at_s;
    u64 clock_sm_mhz, clock_memory_mhz, throttle_reasons, performance_state;
    u64 pcie_tx_kb_s, pcie_rx_kb_s;
    u64 ecc_corrected, ecc_uncorrected, remap_pending, remap_failed;
    u64 lost, hang_ms;
    int error_count, process_count, xid_count;
    forced_error_t errors[MAX_ERRORS];
    process_t processes[MAX_PROCESSES];
    int xids[MAX_XIDS];
} gpu_t;

typedef struct {
    char driver[32], process_dir[512];
    int init_error;
    u64 init_hang_ms;
    int gpu_count;
    gpu_t gpus[MAX_GPUS];
} state_t;

/* Copies the present state. Returns 0 while no readable state file was ever seen. */
int state_now(state_t *out);

/* The listed processes and the living ones of the process folder. */
int state_processes(const state_t *state, const gpu_t *gpu, process_t *out, int max);

/* The memory in use: the figure of the file and what living processes of the process folder hold. */
u64 state_used_bytes(const state_t *state, const gpu_t *gpu);

/* Millijoules since the driver was loaded; the same in every process that asks. */
u64 state_energy_mj(const gpu_t *gpu);

void sleep_ms(u64 milliseconds);

#endif
