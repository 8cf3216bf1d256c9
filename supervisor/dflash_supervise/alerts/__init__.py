"""What is told to people: messages as text, and the channels that carry them. A failure here never touches a run."""

from __future__ import annotations
