"""The catalogue of causes as data, one file a kind: signature, blame, what to do. ``causes`` reads it."""

from __future__ import annotations

from typing import Tuple

from .cause import AFTER_CLEANUP, FIX_CONFIG, NONE, PAGE, RESTART, WAIT, Cause
from .device import DEVICE
from .harmless import HARMLESS
from .host import HOST
from .inputs import INPUTS
from .launch import LAUNCH
from .program import PROGRAM
from .stalls import STALLS

__all__ = ["AFTER_CLEANUP", "CATALOGUE", "FIX_CONFIG", "NONE", "PAGE", "RESTART", "WAIT", "Cause"]

CATALOGUE: Tuple[Cause, ...] = tuple(
    sorted((*LAUNCH, *INPUTS, *DEVICE, *HOST, *PROGRAM, *STALLS, *HARMLESS), key=lambda cause: cause.precedence)
)
