"""Where templates and static files lie, and which of the optional vendored files are there."""

from __future__ import annotations

from pathlib import Path

import dflash_supervise

VENDOR = {
    "htmx": ("vendor/htmx.min.js", "vendor/hx-sse.min.js"),
    "uplot": ("vendor/uPlot.iife.min.js", "vendor/uPlot.min.css"),
}


def templates_dir() -> Path:
    """The ``templates`` folder: the checkout's own where there is one, else the copy inside the package.

    An editable install leaves a frozen copy behind, so the checkout is asked first.

    Raises:
        FileNotFoundError: neither is there; the installation is incomplete.
    """
    package = Path(dflash_supervise.__file__).resolve().parent
    for folder in (package.parent.parent / "templates", package / "templates"):
        if (folder / "web").is_dir() and (folder / "static").is_dir():
            return folder
    raise FileNotFoundError(f"the dashboard's templates are missing beside {package}; reinstall dflash-supervise")


def vendored(static: Path) -> dict[str, bool]:
    """Which libraries of ``make assets`` are complete; pages work without them."""
    return {name: all((static / file).is_file() for file in files) for name, files in VENDOR.items()}
