"""The command line as a program of its own, against the real daemon and in a real terminal."""

from __future__ import annotations
