"""Jinja2 with everything a template may call; a name that a template misspells is an error, not an empty string."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from dflash_supervise.web import sgr, words
from dflash_supervise.web.assets import templates_dir, vendored
from dflash_supervise.web.control import Refused


def page(name: str, **values: Any) -> str:
    """A template under ``templates/web`` as text."""
    return _environment().get_template(name).render(**values)


def refusal_page(refused: Refused) -> str:
    return page("refused.html", refused=refused, tone="unknown" if refused.http_status == 401 else "bad")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    root = templates_dir()
    environment = Environment(
        loader=FileSystemLoader(root / "web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        age=words.age,
        count=words.count,
        rate=words.rate,
        decimal=words.decimal,
        size=words.size,
        spoken=words.spoken,
        clock=words.clock_text,
        rfc3339=words.rfc3339,
        said=_said,
        log_line=sgr.line_html,
    )
    environment.globals.update(vendored=lambda: vendored(root / "static"), static=_static_url(root / "static"))
    return environment


def _said(text: str) -> Markup:
    """A sentence with `commands` in back-ticks, which become code; everything is escaped."""
    pieces = str(text).split("`")
    closed = len(pieces) % 2 == 1
    out = [Markup("<code>{}</code>").format(p) if closed and n % 2 else escape(p) for n, p in enumerate(pieces)]
    return Markup("" if closed else "`").join(out)


def _static_url(static: Path) -> Any:
    """Addresses carry the content, so a browser never mixes the files of two versions."""

    @lru_cache(maxsize=64)
    def digest(file: str, changed_ns: int) -> str:
        return hashlib.sha256((static / file).read_bytes()).hexdigest()[:12]

    def url(file: str) -> str:
        return f"/static/{file}?v={digest(file, (static / file).stat().st_mtime_ns)}"

    return url
