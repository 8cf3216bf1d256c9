"""How often a run may be restarted: a window per cause, a bound per day, exponential back-off, credit for progress."""

from __future__ import annotations

import zlib
from typing import Optional, Tuple

from . import causes
from .memory import EndedAttempt, Memory, Restart
from .policy import Policy

DAY_S = 86400.0
JITTER_FRAC = 0.1
MOST_GROWTH = 100  # restarts that lengthen the back-off: with any factor a number can still hold it


def spent(memory: Memory, cause: str, policy: Policy, now_s: float) -> int:
    """Restarts for this cause inside the window that no credited checkpoint has made free."""
    since = max(now_s - policy.window_s, _credited_at(memory))
    return sum(1 for restart in memory.restarts if restart.cause == cause and restart.at_s > since)


def allowance(cause: str, policy: Policy) -> int:
    """How many restarts a cause may have in one window."""
    own = causes.get(cause).max_restarts
    return policy.max_restarts if own is None else min(own, policy.max_restarts)


def refusal(memory: Memory, ended: EndedAttempt, policy: Policy, now_s: float) -> Optional[str]:
    """Why this end gets no further restart, or None when one is left."""
    day = sum(1 for restart in memory.restarts if restart.at_s > now_s - DAY_S)
    if day >= policy.max_restarts_day:
        return f"{day} restarts in 24 h, the most that are allowed"
    if _same_again(memory, ended):
        return "the same failure again without progress in between (deterministic)"
    used, allowed = spent(memory, ended.cause, policy, now_s), allowance(ended.cause, policy)
    if used >= allowed:
        minutes = policy.window_s / 60
        return f"{used} of {allowed} restarts for {ended.cause} are used within {minutes:.0f} min"
    return None


def backoff_s(memory: Memory, ended: EndedAttempt, policy: Policy, now_s: float) -> float:
    """Seconds between the end and the next launch. The jitter is a function of the attempt: same input, same answer."""
    used = spent(memory, ended.cause, policy, now_s)
    grown = policy.backoff_s * policy.backoff_factor ** min(used, MOST_GROWTH)
    base = min(grown, policy.backoff_max_s)
    share = (zlib.crc32(f"{ended.number}:{ended.fingerprint}".encode()) % 1000) / 1000.0
    return base * (1.0 + JITTER_FRAC * share)


def remember(memory: Memory, restart: Restart) -> Tuple[Restart, ...]:
    return (*tuple(old for old in memory.restarts if old.at_s > restart.at_s - DAY_S), restart)


def _credited_at(memory: Memory) -> float:
    return max([ended.ended_at_s for ended in memory.ended if ended.credited] or [0.0])


def _same_again(memory: Memory, ended: EndedAttempt) -> bool:
    earlier = [old for old in memory.ended if old.number < ended.number and not old.person]
    if not earlier:
        return False
    last = max(earlier, key=lambda old: old.number)
    return last.fingerprint == ended.fingerprint and (ended.checkpoint_step or 0) <= (last.checkpoint_step or 0)
