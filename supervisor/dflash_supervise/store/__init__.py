"""The memory of the daemon: the only importer of SQLAlchemy."""

from __future__ import annotations

from dflash_supervise.store.apply import asks_for_another
from dflash_supervise.store.logs import LogFiles
from dflash_supervise.store.open import StoreError
from dflash_supervise.store.store import NoSuchRun, Store

__all__ = ["LogFiles", "NoSuchRun", "Store", "StoreError", "asks_for_another"]
