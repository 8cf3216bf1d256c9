"""The command line: talks to the daemon over HTTP on this machine and to nothing else."""

from __future__ import annotations
