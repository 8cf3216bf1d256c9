"""What runs on the host: keeper, agent, stream. Python 3.8, standard library, pynvml in a child process."""

from __future__ import annotations
