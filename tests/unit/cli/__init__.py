"""The command line against a daemon's double on a real socket."""

from __future__ import annotations
