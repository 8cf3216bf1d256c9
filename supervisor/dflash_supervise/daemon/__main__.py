"""``python -m dflash_supervise.daemon``: the daemon as ``spawn`` starts it, settings from files and environment."""

from __future__ import annotations

import sys

from dflash_supervise.config import ConfigError, load


def main() -> int:
    try:
        settings = load()
    except ConfigError as error:
        print(f"dflash-supervise: {error}", file=sys.stderr)
        return error.exit_code
    from dflash_supervise.daemon.main import run

    return run(settings)


if __name__ == "__main__":
    sys.exit(main())
