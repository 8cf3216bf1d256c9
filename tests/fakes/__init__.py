"""Stand-ins for what a test machine does not have: GPUs and the NVIDIA driver."""

from __future__ import annotations
