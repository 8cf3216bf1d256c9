"""The laboratory: a real sshd behind a relay that can lose its network, and a look at leftover processes."""

from __future__ import annotations
