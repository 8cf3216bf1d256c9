"""The process set of one attempt: what a stop ends, and what must be gone before the next launch.

Members are the main process, its session and group if our keeper made them, all descendants of it and of the keeper,
every holder of the attempt's token, and whoever was seen to be one of these before. A scan of /proc costs some 90 us a
process, so numbers already judged foreign are skipped; their inode in /proc tells when a number has a new owner.
"""

from __future__ import annotations

import glob
import os
from typing import Dict, Iterable, List, Optional, Set, Tuple

from dflash_supervise.agent import proc, shapes
from dflash_supervise.agent.files import write_json
from dflash_supervise.agent.proc import TICKS_A_SECOND, Key, Stat, is_alive, signal_process, start_ticks
from dflash_supervise.agent.strangers import TokenHolder, serving, token_holder
from dflash_supervise.core.facts import GpuHolder, ProcessesReading, ProcessFact

__all__ = ["ProcessSet", "TokenHolder", "is_alive", "signal_process", "start_ticks"]

SETTLED_S = 3.0  # between fork and exec a process still shows its parent's environment
FULL_EVERY_S = 60.0
DETAILS_MAX = 64  # processes whose wait, tracer and I/O are read each time
PID_INIT_INO = 0xEFFFFFFC  # the machine's own pid namespace (include/linux/proc_ns.h)
COMPILERS = frozenset(
    ["cc1", "cc1plus", "as", "ld", "ld.bfd", "ld.lld", "collect2", "gcc", "g++", "c++", "clang", "clang++", "ninja"]
)
GPU_COMPILERS = frozenset(["nvcc", "cicc", "ptxas", "cudafe++", "fatbinary", "nvlink", "triton-opt"])


class ProcessSet:
    """Remembers who was a member, so that losing the environment or the parent does not lose the process."""

    def __init__(
        self,
        run_id: str,
        attempt: int,
        *,
        proc_root: str = "/proc",
        memory_path: Optional[str] = None,
        own_session: bool = True,
        dev_glob: str = "/dev/nvidia*",
    ) -> None:
        """memory_path: where members are remembered across agents. own_session: our keeper made the main process."""
        self.token = (run_id, attempt)
        self.others: Tuple[TokenHolder, ...] = ()
        self.bystanders: Tuple[ProcessFact, ...] = ()
        self._proc_root = proc_root
        self._memory_path = memory_path
        self._own_session = own_session
        self._dev_glob = dev_glob
        self._remembered: Set[Key] = _recall(memory_path, proc_root)
        self._foreign: Dict[int, int] = {}  # pid -> inode of /proc/PID
        self._tokens: Dict[Key, Optional[Tuple[str, int]]] = {}
        self._members: Dict[int, str] = {}
        self._next_full_s = 0.0
        self._roots: Tuple[Optional[Key], Optional[Key]] = (None, None)
        self._on_gpu: Set[Key] = set()

    def scan(self, main: Optional[Key], keeper: Optional[Key], *, now_s: float, full: bool = False) -> ProcessesReading:
        """Look at /proc. main, keeper: (pid, start_ticks) or None; now_s: CLOCK_BOOTTIME; full: trust no earlier no."""
        if full or now_s >= self._next_full_s or self._roots != (main, keeper):
            self._foreign.clear()
            self._next_full_s, self._roots = now_s + FULL_EVERY_S, (main, keeper)
        stats, inodes = self._read_unknown(main)
        tokens = {pid: self._token(stat, now_s) for pid, stat in stats.items()}
        via = self._find(stats, tokens, main, keeper)
        mine = [stats[pid] for pid in sorted(via)]
        strangers = [s for pid, s in stats.items() if pid not in via and tokens[pid] not in (None, self.token)]
        named = {s.pid for s in strangers} | {p.pid for p in self.bystanders}
        for pid, stat in stats.items():
            if pid not in via and pid not in named and _age_s(stat, now_s) > SETTLED_S:
                self._foreign[pid] = inodes[pid]
        self._foreign = {pid: inode for pid, inode in self._foreign.items() if inodes.get(pid) == inode}
        self._tokens = {s.key: self._tokens[s.key] for s in stats.values() if s.key in self._tokens}
        self._members = via
        self._remember({stat.key for stat in mine})
        self.others = tuple(token_holder(s, tokens[s.pid], self._proc_root) for s in strangers if s.alive)
        return self._reading(mine, via, main, keeper)

    def holder(self, pid: int, mem_bytes: Optional[int]) -> GpuHolder:
        """Who the driver means by this pid, after the last ``scan``.

        ``ours`` is None when the number does not name a process that we can see holding a GPU: in a container the
        driver may tell the host's numbers, and the same number here may be anybody.
        """
        stat = proc.read_stat(pid, self._proc_root)
        if stat is None or not self._plausible(stat):
            return GpuHolder(pid=pid, mem_bytes=mem_bytes, ours=None)
        token = self._tokens.get(stat.key) or proc.token_of(pid, self._proc_root)
        return GpuHolder(
            pid=pid,
            mem_bytes=mem_bytes,
            ours=pid in self._members,
            run_token=None if token is None else f"{token[0]}:{token[1]}",
            comm=stat.comm,
            uid=proc.uid_of(pid, self._proc_root),
        )

    # ------------------------------------------------------------ reading

    def _read_unknown(self, main: Optional[Key]) -> Tuple[Dict[int, Stat], Dict[int, int]]:
        """Every process not known to be foreign, and the /proc inode of all."""
        stats: Dict[int, Stat] = {}
        with os.scandir(self._proc_root) as entries:
            inodes = {int(entry.name): entry.inode() for entry in entries if entry.name.isdigit()}
        for pid, inode in inodes.items():
            if self._foreign.get(pid) == inode and (main is None or pid != main[0]):
                continue
            stat = proc.read_stat(pid, self._proc_root)
            if stat is None:
                continue
            if stat.kernel:
                self._foreign[pid] = inode
            else:
                stats[pid] = stat
        return stats, inodes

    def _token(self, stat: Stat, now_s: float) -> Optional[Tuple[str, int]]:
        """A settled answer is kept: setproctitle may overwrite the environment later."""
        if stat.key in self._tokens:
            return self._tokens[stat.key]
        token = proc.token_of(stat.pid, self._proc_root) if stat.alive else None
        if _age_s(stat, now_s) > SETTLED_S:
            self._tokens[stat.key] = token
        return token

    # ------------------------------------------------------------ who is a member

    def _find(
        self,
        stats: Dict[int, Stat],
        tokens: Dict[int, Optional[Tuple[str, int]]],
        main: Optional[Key],
        keeper: Optional[Key],
    ) -> Dict[int, str]:
        """pid -> how we know, for each member. Sets ``bystanders``."""
        children: Dict[int, List[int]] = {}
        for stat in stats.values():
            children.setdefault(stat.ppid, []).append(stat.pid)
        excluded = _ourselves(self._proc_root)
        if keeper is not None:
            excluded.add(keeper[0])
        excluded.update(pid for pid, token in tokens.items() if token not in (None, self.token))
        via: Dict[int, str] = {}

        def add(pids: Iterable[int], how: str) -> None:
            todo = [pid for pid in pids if pid in stats and pid not in excluded and pid not in via]
            via.update(dict.fromkeys(todo, how))
            while todo:
                below = [c for c in children.get(todo.pop(), ()) if c not in via and c not in excluded]
                via.update(dict.fromkeys(below, "token" if how == "token" else "tree"))
                todo.extend(below)

        known = {stat.key: stat.pid for stat in stats.values()}
        add([main[0]] if main in known and main is not None else [], "main")
        add(children.get(keeper[0], []) if keeper in known and keeper is not None else [], "tree")
        old = [known[key] for key in self._remembered if key in known]
        if self._own_session and main is not None and (main in known or any(stats[p].sid == main[0] for p in old)):
            add([stat.pid for stat in stats.values() if stat.sid == main[0]], "session")
        holders = [pid for pid, token in tokens.items() if token == self.token and stats[pid].alive]
        add([pid for pid in old if pid in holders], "token")
        add(old, "remembered")
        outside = [pid for pid in holders if pid not in via and pid not in excluded]
        aside = serving(outside, stats, children, tokens, self.token)
        add([pid for pid in outside if pid not in aside], "token")
        for pid in aside:
            via.pop(pid, None)
        self.bystanders = tuple(proc.fact(stats[pid], "bystander", self._proc_root) for pid in sorted(aside))
        return via

    def _reading(
        self, mine: List[Stat], via: Dict[int, str], main: Optional[Key], keeper: Optional[Key]
    ) -> ProcessesReading:
        # The main process and the living first: the details of a hundred loader workers say little more.
        order = sorted(mine, key=lambda s: (via[s.pid] != "main", not s.alive, s.pid))
        detailed = {stat.pid for stat in order[:DETAILS_MAX]}
        facts = [proc.fact(s, via[s.pid], self._proc_root, details=s.alive and s.pid in detailed) for s in mine]
        return ProcessesReading(
            members=tuple(facts),
            main_alive=None if main is None else self._lives(main),
            keeper_alive=None if keeper is None else self._lives(keeper),
            compilers=sum(1 for s in mine if s.alive and s.comm in COMPILERS | GPU_COMPILERS),
        )

    def _lives(self, key: Key) -> bool:
        """Asked of /proc itself: a process that carries another run's token is not ours to signal, and not dead."""
        stat = proc.read_stat(key[0], self._proc_root)
        return stat is not None and stat.key == key and stat.alive

    def _remember(self, keys: Set[Key]) -> None:
        if keys == self._remembered:
            return
        self._remembered = keys
        if self._memory_path is not None:
            try:
                boot = proc.boot_id(self._proc_root)
                write_json(self._memory_path, {"boot_id": boot, "members": sorted(keys)}, durable=False)
            except OSError:
                return  # only the next agent would miss it, and only for members that lost every other mark

    def _plausible(self, stat: Stat) -> bool:
        """In the machine's own pid namespace every number is right; elsewhere the process must have a GPU open."""
        if stat.key in self._on_gpu or _sees_all_pids(self._proc_root):
            return True
        devices = set(glob.glob(self._dev_glob))
        try:
            names = os.listdir(f"{self._proc_root}/{stat.pid}/fd")
        except OSError:
            return False
        for name in names:
            try:
                if os.readlink(f"{self._proc_root}/{stat.pid}/fd/{name}") in devices:
                    self._on_gpu.add(stat.key)
                    return True
            except OSError:
                continue  # closed meanwhile
        return False


def _recall(path: Optional[str], proc_root: str) -> Set[Key]:
    return set() if path is None else set(shapes.members(path, proc.boot_id(proc_root)))


def _age_s(stat: Stat, now_s: float) -> float:
    return now_s - stat.start_ticks / TICKS_A_SECOND


def _ourselves(proc_root: str) -> Set[int]:
    """This process and whatever it runs under: a shell, sshd, tmux. None of them can be a member."""
    found = {0, 1, os.getpid()}
    pid = os.getppid()
    while pid > 1 and pid not in found:
        found.add(pid)
        stat = proc.read_stat(pid, proc_root)
        pid = 0 if stat is None else stat.ppid
    return found


def _sees_all_pids(proc_root: str) -> bool:
    try:
        return os.stat(f"{proc_root}/self/ns/pid").st_ino == PID_INIT_INO
    except OSError:
        return False
