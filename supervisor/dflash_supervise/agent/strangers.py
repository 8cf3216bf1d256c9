"""Token holders that are not of the set: of another attempt, or serving others. They are named; a few may be ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Set, Tuple

from dflash_supervise.agent import proc
from dflash_supervise.agent.proc import Stat
from dflash_supervise.core.facts import ProcessFact

Token = Tuple[str, int]  # (run_id, attempt)
SERVERS = ("tmux", "screen", "SCREEN", "sshd", "systemd", "dbus-", "ssh-agent", "gpg-agent", "cron")


@dataclass(frozen=True)
class TokenHolder:
    """A process whose environment carries the token of another attempt, of this run or of another."""

    process: ProcessFact
    run_id: str
    attempt: int
    workspace: Optional[str]  # from its own environment; None: it does not say
    keeper_above: bool  # its keeper still runs, so somebody answers for it
    serves_others: bool  # a shell of a person, a terminal server: named, never signalled


def token_holder(stat: Stat, token: Optional[Token], proc_root: str = "/proc") -> TokenHolder:
    """What the process itself says about the attempt it belongs to."""
    assert token is not None
    where = (proc.read_environ(stat.pid, proc_root) or {}).get("DFLASH_ATTEMPT_DIR", "")
    tail = f"/.dflash/runs/{token[0]}/attempts/{token[1]}"
    return TokenHolder(
        process=proc.fact(stat, "token", proc_root),
        run_id=token[0],
        attempt=token[1],
        workspace=where[: -len(tail)] or "/" if where.endswith(tail) else None,
        keeper_above=_keeper_above(stat, token[0], proc_root),
        serves_others=_looks_serving(stat),
    )


def _looks_serving(stat: Stat) -> bool:
    return stat.tty != 0 or stat.comm.startswith(SERVERS)


def serving(
    outside: List[int],
    stats: Dict[int, Stat],
    children: Dict[int, List[int]],
    tokens: Dict[int, Optional[Token]],
    token: Token,
) -> Set[int]:
    """Token holders outside the tree that serve others, and everything below them."""
    aside: Set[int] = set()
    todo = [p for p in outside if _looks_serving(stats[p]) or any(tokens[c] != token for c in children.get(p, ()))]
    while todo:
        pid = todo.pop()
        if pid not in aside:
            aside.add(pid)
            todo.extend(child for child in children.get(pid, ()) if tokens[child] == token)
    return aside


def _keeper_above(stat: Stat, run_id: str, proc_root: str) -> bool:
    """A keeper adopts what its trainer leaves behind, so while it lives it is above all of it."""
    parent = proc.read_stat(stat.ppid, proc_root)
    while parent is not None and parent.pid > 1:
        words = (proc.read_bytes(f"{proc_root}/{parent.pid}/cmdline") or b"").split(b"\0")
        if b"keep" in words and any(word.endswith(b"/" + run_id.encode()) for word in words):
            return True
        parent = proc.read_stat(parent.ppid, proc_root)
    return False
