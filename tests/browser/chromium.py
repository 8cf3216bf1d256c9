"""The machine's own Chromium, driven by Playwright: nothing is downloaded, and it speaks to the dashboard alone."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
)


def executable() -> str:
    """Path of the browser.

    Raises:
        FileNotFoundError: none is installed; the text says how to get one.
    """
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise FileNotFoundError(
            f"no browser found ({', '.join(NAMES)}); install one, for example: apt install chromium"
        )
    return found


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    # Chromium's own sandbox refuses to work for root.
    flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else list(FLAGS)
    with sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=executable(), args=flags)
        try:
            yield instance
        finally:
            instance.close()
