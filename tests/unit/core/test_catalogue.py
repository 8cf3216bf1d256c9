"""The catalogue is data that others rely on: each slug once, ordered by nearness to the root."""

from __future__ import annotations

import re

import pytest

from dflash_supervise.core import causes
from dflash_supervise.core.matching import bounded, key_of


def test_every_slug_stands_once_and_the_order_is_the_precedence() -> None:
    slugs = [cause.slug for cause in causes.CATALOGUE]
    assert len(slugs) == len(set(slugs))
    ranks = [cause.precedence for cause in causes.CATALOGUE]
    assert ranks == sorted(ranks)


ACCUSING = {
    "fx_tracing_race": "Detected that you are using FX to symbolically trace a dynamo-optimized function",
    "cuda_oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    "disk_full": "OSError: [Errno 28] No space left on device",
    "disk_quota": "OSError: [Errno 122] Disk quota exceeded: '/home/a'",
    "inodes_full": "df: Inodes on /scratch: 100% used",
    "shm_exhausted": "RuntimeError: unable to open shared memory object </torch_1> in read-write mode",
    "port_in_use": "RuntimeError: EADDRINUSE, address already in use",
    "import_error": "ModuleNotFoundError: No module named 'x'",
    "device_side_assert": "RuntimeError: CUDA error: device-side assert triggered",
    "cuda_illegal_memory_access": "CUDA error: an illegal memory access was encountered",
    "cublas_error": "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cudnn_error": "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "nccl_timeout": "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)",
    "nccl_desync": "init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls",
    "nccl_remote_error": "ncclRemoteError: A call failed possibly due to a network error",
    "permission_denied": "PermissionError: [Errno 13] Permission denied: '/x'",
    "command_not_found": "run.sh: line 3: torchrun: command not found",
    "python_missing": "bash: /opt/env/bin/python3.11: No such file or directory",
    "tmux_missing": "bash: line 1: tmux: command not found",
    "bad_workdir": "bash: line 1: cd: /gone: No such file or directory",
    "bad_argument": "train.py: error: unrecognized arguments: --lrr 1",
    "config_error": "tomllib.TOMLDecodeError: Invalid value (at line 3, column 5)",
    "missing_file": "FileNotFoundError: [Errno 2] No such file or directory: 'x'",
    "auth_error": "huggingface_hub.errors.GatedRepoError: 403 Client Error.",
    "corrupt_checkpoint": "RuntimeError: unexpected EOF, expected 4859355 more bytes. The file might be corrupted.",
    "duplicate_session": "duplicate session: exp",
    "cuda_driver_mismatch": "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
    "cuda_system_not_ready": "RuntimeError: Error 802: system not yet initialized",
    "no_kernel_image": "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "segfault": "Fatal Python error: Segmentation fault",
    "illegal_instruction": "./run.sh: line 41: 20714 Illegal instruction     (core dumped) python x.py",
    "bus_error": "Bus error (core dumped)",
    "abort": "terminate called after throwing an instance of 'c10::Error'",
    "host_oom_kill": "[1.0] Out of memory: Killed process 12 (python)",
    "cgroup_oom_kill": "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0",
    "killed_externally": "slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
    "tmux_killed_on_logout": "Hangup",
    "spot_preemption": "submitit WARNING - Caught signal SIGUSR2 on host1: this job is preempted.",
    "dataloader_killed": "RuntimeError: DataLoader worker (pid 81744) is killed by signal: Killed.",
    "pin_memory_thread_dead": "RuntimeError: Pin memory thread exited unexpectedly",
    "rollout_worker_dead": "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
    "remote_service_error": "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x', port=443)",
    "recompile_limit": "torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached with one_graph=True.",
    "loss_scale_exhausted": "FloatingPointError: Minimum loss scale reached (0.0001).",
    "nan_loss": "ValueError: Loss is nan, stopping training",
    "xid_48_ecc": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "xid_79": "NVRM: GPU 0000:9d:00.0: GPU has fallen off the bus.",
    "xid_119": "Timeout waiting for RPC from GSP! Expected function 76",
    "xid_120": "GSP task exception: 5 (crash)",
    "gpu_lost": "pynvml.NVMLError_GpuIsLost: GPU is lost",
}
MARKING = {
    "checkpointing": "saving checkpoint at iteration   12000 to /mnt/ckpt in torch_dist format",
    "evaluation": "***** Running Evaluation *****",
    "compile": "AUTOTUNE mm(4096x4096, 4096x4096)",
    "recompile": "W0502 torch/_dynamo/convert_frame.py:906] torch._dynamo hit config.recompile_limit (8)",
    "model_loading": "Loading checkpoint shards:  12%|#2        | 4/33 [01:40<12:05, 25.0s/it]",
    "data_preprocessing": "Map (num_proc=64):   7%|7         | 70000/1000000 [03:10<41:00, 377.9 examples/s]",
    "oom_recovered": "out of memory on a long sample, skipping it",
    "loss_scale_warmup": "| WARNING: overflow detected, setting loss scale to: 0.25",
    "elastic_restart": "[default] Worker group FAILED. 3/3 attempts left; will restart worker group",
    "buffered_stdout": "nohup: ignoring input",
    "nvml_driver_mismatch": "Failed to initialize NVML: Driver/library version mismatch",
    "nvml_unavailable": "pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found",
    "mig_util_unsupported": "nvmlDeviceGetUtilizationRates: NVMLError_NotSupported",
    "pid_namespace": "none of these pids exist in /proc of this container",
    "data_stall": "WARNING [data] prefetch queue empty for 60s (rank 0)",
    "stale_lock": "Using /root/.cache/torch_extensions as PyTorch extensions root...",
    "dataloader_deadlock": "huggingface/tokenizers: forked, after parallelism has already been used.",
    "uneven_data": "[data] rank 3: no more batches, leaving",
    "compile_deadlock": "thread train-2: acquire (compile_lock.py:88)",
    "gil_deadlock": "take_gil (ceval_gil.c:300)",
    "xid_119": "[mon] nvmlDeviceGetUtilizationRates(3) did not return within 20s",
}


def test_every_cause_with_patterns_is_named_by_a_line_of_its_own() -> None:
    assert {cause.slug for cause in causes.CATALOGUE if cause.patterns} == set(ACCUSING)
    assert {slug: causes.match(line) for slug, line in ACCUSING.items()} == {slug: slug for slug in ACCUSING}


def test_every_cause_with_marks_is_spoken_of_by_a_line_of_its_own() -> None:
    assert {cause.slug for cause in causes.CATALOGUE if cause.marks} == set(MARKING)
    assert {slug: causes.marks(line) for slug, line in MARKING.items()} == {slug: slug for slug in MARKING}


@pytest.mark.parametrize(
    "line",
    [
        "step=12 loss=0.4 word_error_rate=0.9 exceptions=0 killed_shards=0 fatal=0",
        "Exception handling hooks installed (faulthandler=on)",
        "E0000 cuda_dnn.cc:8310] Unable to register cuDNN factory: it has already been registered",
        "huggingface/tokenizers: Disabling parallelism to avoid deadlocks...",
        "INFO aborted 0 requests, fatal=0, segmentation fault counter=0",
        "gpu-a07:91310:91662 [0] NCCL INFO Failed to open libibverbs.so[.1]",
        "Error budget for bad samples: 200 per epoch",
        "the memory of this model is large, and no file was found missing",
    ],
)
def test_a_scary_word_accuses_nobody(line: str) -> None:
    assert causes.match(line) is None


def test_the_word_that_calls_for_a_pattern_stands_whole_in_every_line_it_matches() -> None:
    assert key_of(r"[Aa]ddress already in use") == "address"
    assert key_of(r"\bEADDRINUSE\b") == "eaddrinuse"
    assert key_of(r"cd: .*: (?:No such file|Not a directory)") == "cd"
    assert key_of(r"holds? the GIL") == "gil"  # a rare word before a common one
    with pytest.raises(ValueError, match="no whole word"):
        key_of(r"(?:one|other)\S*")
    assert bounded(r"EOF\b") == r"(?<![A-Za-z])EOF\b" and bounded(r"/dev: ") == r"/dev: "


def test_the_catalogue_holds_at_least_sixty_causes() -> None:
    assert len(causes.CATALOGUE) >= 60


def test_what_is_never_restarted_has_no_restarts_and_a_blame() -> None:
    for cause in causes.CATALOGUE:
        assert cause.blame in ("user", "program", "host", "hardware", "outside"), cause.slug
        assert re.fullmatch(r"[a-z0-9_]+", cause.slug)
        if cause.action in (causes.FIX_CONFIG, causes.PAGE):
            assert cause.max_restarts == 0, cause.slug
