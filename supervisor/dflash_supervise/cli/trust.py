"""Host keys: nobody is believed on first contact before a person has compared the fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dflash_supervise.cli import clean, exits, goals, say, watch, words
from dflash_supervise.cli.errors import CliError

if TYPE_CHECKING:
    from dflash_supervise.cli.api import Api

UNKNOWN_KEY = "host_key_unknown"


def trusting(api: Api, target: str, act: Callable[[], dict[str, Any]], *, yes: bool) -> dict[str, Any]:
    """Do it; on an unknown host key show the fingerprint, ask, and do it once more.

    --yes does not answer this question: it was said before anybody saw the key.
    """
    try:
        return act()
    except CliError as error:
        fingerprint = _fingerprint(error)
        if error.code != UNKNOWN_KEY or not fingerprint:
            raise
        _ask(target, error, fingerprint)
        api.post("/hosts/trust", {"target": target, "fingerprint": fingerprint})
        return act()


def trust(api: Api, target: str, fingerprint: str | None, *, yes: bool) -> dict[str, Any]:
    """Trust the key with this fingerprint, or the one that the host shows now, after asking."""
    if fingerprint:
        return api.post("/hosts/trust", {"target": target, "fingerprint": fingerprint})
    try:
        watch.operation(api, str(api.post("/doctor", {"target": target})["operation"]), say.StatusLine())
    except CliError as error:
        shown = _fingerprint(error)
        if error.code != UNKNOWN_KEY or not shown:
            raise
        if not yes:
            _ask(target, error, shown)
        return api.post("/hosts/trust", {"target": target, "fingerprint": shown})
    return {"message": f"the key of {target} is trusted already"}


def _ask(target: str, error: CliError, fingerprint: str) -> None:
    evidence = error.evidence if isinstance(error.evidence, dict) else {}
    kind = f"{evidence['key_type']} " if evidence.get("key_type") else ""
    shown = clean.document(
        [
            f"{target} is seen for the first time. It shows this key:",
            f"  {kind}{fingerprint}",
            "Compare it with what the host's owner tells you (on the host:",
            "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub).",
        ]
    )
    try:
        goals.confirm("Trust this key from now on?", yes=False, shown=shown)
    except CliError as refused:
        raise CliError(
            error.message,
            fix=words.command("host", "trust", target, "--fingerprint", fingerprint),
            exit_code=exits.CHECK_FAILED,
            code=UNKNOWN_KEY,
            evidence=error.evidence,
        ) from refused


def _fingerprint(error: CliError) -> str:
    evidence = error.evidence if isinstance(error.evidence, dict) else {}
    return str(evidence.get("fingerprint") or "")
