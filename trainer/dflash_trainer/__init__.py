"""The bundled DFlash drafter trainer: runs alone, imports nothing of the supervisor."""

from __future__ import annotations

__version__ = "0.1.0"
