"""The command line from the checkout, where the package is not installed."""

from __future__ import annotations

from dflash_supervise.cli.main import main

if __name__ == "__main__":
    main()
