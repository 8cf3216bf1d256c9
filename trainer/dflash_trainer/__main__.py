"""`python -m dflash_trainer`."""

from __future__ import annotations

from dflash_trainer.cli import main

if __name__ == "__main__":
    main()
