"""The loop on the supervisor's side: follow, store, judge silence, hand over goals, tell, serve."""

from __future__ import annotations
