"""The catalogue is data that others rely on: each slug once, ordered by nearness to the root."""

from __future__ import annotations

import re

from dflash_supervise.core import causes


def test_every_slug_stands_once_and_the_order_is_the_precedence() -> None:
    slugs = [cause.slug for cause in causes.CATALOGUE]
    assert len(slugs) == len(set(slugs))
    ranks = [cause.precedence for cause in causes.CATALOGUE]
    assert ranks == sorted(ranks)


def test_every_pattern_has_a_hint_so_that_no_line_is_passed_over_by_mistake() -> None:
    samples = {
        "fx_tracing_race": "Detected that you are using FX to symbolically trace a dynamo-optimized function",
        "cuda_oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "disk_full": "OSError: [Errno 28] No space left on device",
        "port_in_use": "RuntimeError: EADDRINUSE, address already in use",
        "import_error": "ModuleNotFoundError: No module named 'x'",
        "device_side_assert": "RuntimeError: CUDA error: device-side assert triggered",
        "cuda_illegal_memory_access": "CUDA error: an illegal memory access was encountered",
        "nccl_timeout": "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)",
        "permission_denied": "PermissionError: [Errno 13] Permission denied: '/x'",
        "command_not_found": "run.sh: line 3: torchrun: command not found",
        "segfault": "Fatal Python error: Segmentation fault",
        "abort": "Fatal Python error: Aborted",
        "missing_file": "FileNotFoundError: [Errno 2] No such file or directory: 'x'",
    }
    with_patterns = {cause.slug for cause in causes.CATALOGUE if cause.patterns}
    assert with_patterns == set(samples)
    assert {slug: causes.match(line) for slug, line in samples.items()} == {slug: slug for slug in samples}


def test_what_is_never_restarted_has_no_restarts_and_a_blame() -> None:
    for cause in causes.CATALOGUE:
        assert cause.blame in ("user", "program", "host", "hardware", "outside"), cause.slug
        assert re.fullmatch(r"[a-z0-9_]+", cause.slug)
        if cause.action in (causes.FIX_CONFIG, causes.PAGE):
            assert cause.max_restarts == 0, cause.slug
