"""The main job on one machine without a GPU: train, break, diagnose, cure, and check that all of it happened."""

from __future__ import annotations
