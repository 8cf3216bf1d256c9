"""The dashboard and the JSON API: reads the store, hands goals to the daemon, reaches no host itself."""

from __future__ import annotations

from dflash_supervise.web.app import create_app
from dflash_supervise.web.control import Control, Reads, Refused
from dflash_supervise.web.settings import WebSettings

__all__ = ["Control", "Reads", "Refused", "WebSettings", "create_app"]
