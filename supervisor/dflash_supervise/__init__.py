"""Starts, watches and cures DFlash drafter training on GPU machines reached over SSH.

The version is a constant and not read from the installed distribution: a part of this package travels
to hosts where nothing is installed.
"""

from __future__ import annotations

__version__ = "0.1.0"
