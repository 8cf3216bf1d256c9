"""Checks of this machine and of a host, each with what to do about it."""

from __future__ import annotations

import os
import shutil
from typing import Any

from dflash_supervise.config import ConfigError, Settings
from dflash_supervise.config.target import HostTarget
from dflash_supervise.daemon.launch import connect, own_python
from dflash_supervise.daemon.operations import Operation
from dflash_supervise.daemon.parts import Parts

Doc = dict[str, Any]

DOCTOR_S = 120.0
_DISK_LOW_BYTES = 512 * 1024**2


def doctor(parts: Parts, settings: Settings, target: HostTarget | None, operation: Operation) -> None:
    """Fill the operation's checks: {"name", "ok": true|false|null, "detail", "fix"}.

    Raises:
        LinkError: there is no way to the host, so no check of it can be made.
    """
    checks = here(parts, settings)
    operation.result["checks"] = checks
    if target is None:
        return
    link = connect(parts, target, operation)
    checks.append(_check("connection", True, f"{target.key} answers"))
    op = {"op": "doctor", "workspace": target.workspace, "pythons": own_python(target)}
    checks.extend(link.request(op, DOCTOR_S)["checks"])


def here(parts: Parts, settings: Settings) -> list[Doc]:
    """Checks of the supervisor's own machine."""
    free = shutil.disk_usage(settings.state_dir).free
    agent = os.environ.get("SSH_AUTH_SOCK")
    found = [
        _check("state directory", True, str(settings.state_dir)),
        _check(
            "disk of the state directory",
            free > _DISK_LOW_BYTES,
            f"{free / 1024**3:.1f} GiB free",
            "free some space, or set [daemon] state_dir",
        ),
        _check(
            "ssh",
            shutil.which("ssh") is not None,
            "ssh is found" if shutil.which("ssh") else "no ssh program: its configuration cannot be read",
            "install the OpenSSH client",
        ),
        _check(
            "ssh agent",
            True if agent else None,
            agent or "no SSH_AUTH_SOCK: only key files without passphrase can be used",
            "start the daemon from a session with an ssh agent",
        ),
    ]
    return [*found, *_alert_checks(parts, settings)]


def _alert_checks(parts: Parts, settings: Settings) -> list[Doc]:
    found = []
    for name, secret in (("slack", settings.slack.webhook), ("webhook", settings.webhook.url)):
        if secret is None:
            found.append(_check(name, None, "not configured", f"set [{name}] in the configuration"))
            continue
        try:
            secret.reveal()
        except ConfigError as error:
            found.append(_check(name, False, error.message, error.fix))
            continue
        state = next((one for one in parts.store.channels() if one["channel"] == name), {})
        off = state.get("off_reason")
        waiting = f"{state.get('waiting', 0)} messages wait"
        found.append(_check(name, not off, off or waiting, "correct the address and restart the daemon"))
    return found


def _check(name: str, ok: bool | None, detail: str, fix: str = "") -> Doc:
    return {"name": name, "ok": ok, "detail": detail, "fix": "" if ok else fix}
