"""One verb a file; a verb imports what it needs when it runs, so that start-up stays quick."""

from __future__ import annotations
