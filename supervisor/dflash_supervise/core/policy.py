"""Thresholds and responses: everything a user may turn. Units are in the names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

PRESETS: Tuple[str, ...] = ("auto", "careful", "observe")
MOST_S = 366 * 86400.0
MOST_FACTOR = 1000.0
MOST_COUNT = 2**50  # also of bytes: 1 PiB


@dataclass(frozen=True)
class Policy:
    """Every limit and response; the default is what the product promises."""

    preset: str = "auto"
    suspect_floor_s: float = 30.0  # suspect = max(floor, steps x largest recent step time)
    suspect_steps: float = 5.0
    confirm_factor: float = 3.0
    start_silent_s: float = 300.0  # starting, and no family shows any growth
    stacks_apart_s: float = 30.0  # two equal stack samples this far apart make a blocked run a hang that may be ended
    saving_s: float = 1800.0  # no heuristic action while saving, for max(this, 3 x longest save)
    evaluating_s: float = 1800.0
    worker_lost_s: float = 45.0  # worker's step flat while another moves or waits
    worker_lost_traceback_s: float = 10.0  # the same with its traceback in the log
    stopped_s: float = 20.0  # main process in state T for this long
    stopped_cure_s: float = 10.0  # wait after SIGCONT before a page
    stale_confirm_s: float = 5.0  # a busy GPU before the first launch, for this long, refuses the start
    grace_s: float = 30.0  # between SIGTERM and SIGKILL
    unkillable_s: float = 10.0  # after SIGKILL
    max_restarts: int = 3  # per cause and window
    window_s: float = 3600.0
    max_restarts_day: int = 8
    backoff_s: float = 5.0
    backoff_factor: float = 3.0
    backoff_max_s: float = 300.0
    killed_wait_s: float = 600.0  # after a SIGKILL by somebody, before the one restart
    credit_steps: int = 50  # a checkpoint this far beyond the best makes restarts free again ...
    credit_s: float = 600.0  # ... if also this long after the launch
    disk_low_bytes: int = 2 * 1024**3
    remedies: Tuple[str, ...] = ("another_port",)  # process_workers joins when it has run on GPUs

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ValueError("policy.preset is {!r}; it must be one of {}".format(self.preset, ", ".join(PRESETS)))


def out_of_range(name: str, value: object) -> Optional[str]:
    """What a number given for this field may be, None where it is that.

    Asked of what a person gives. Not part of the policy itself: what an earlier version took must still be read.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if value < 0:
        return "it cannot be negative"
    if name.endswith("_s"):
        return None if value <= MOST_S else f"use seconds from 0 to {MOST_S:.0f} (366 days)"
    most = MOST_FACTOR if isinstance(getattr(Policy, name), float) else MOST_COUNT
    return None if value <= most else f"use a number from 0 to {most:.0f}"
