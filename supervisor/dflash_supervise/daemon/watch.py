"""The daemon's tick: silence judged by ``core.fleet``, goals that wait for their host, thinning, reminders."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from dflash_supervise.config import Settings
from dflash_supervise.core import fleet
from dflash_supervise.daemon.handover import REQUEST_S, host_spec
from dflash_supervise.daemon.parts import Parts
from dflash_supervise.daemon.seam import HostLink
from dflash_supervise.daemon.sessions import ensure_session
from dflash_supervise.link import LinkError

Doc = dict[str, Any]

log = logging.getLogger(__name__)

TICK_S = 1.0
HOUSEKEEPING_S = 60.0
HOSTS_AT_ONCE = 8
ASK_AGAIN_S = (1.0, 60.0)  # after a refusal, doubled each time up to the second
NEVER_CAME = "the start was cut short before the host had it; nothing was launched"


@dataclass(frozen=True)
class _Asked:
    """How often a host was asked to take one generation of a run's spec, and when it may be asked again."""

    generation: int
    times: int
    again_at: float


class Watch:
    """One thread that ticks, and a few that talk to hosts for it."""

    def __init__(self, parts: Parts, settings: Settings, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._settings = settings
        self._monotonic = monotonic
        alerts = settings.alerts
        self._limits = fleet.Limits(
            unreachable_hold_s=alerts.unreachable_hold_s,
            agent_silent_s=alerts.agent_silent_s,
            silent_hold_s=alerts.silent_hold_s,
        )
        self._ensured: dict[str, float] = {}
        self._asked: dict[str, _Asked] = {}
        self._busy: dict[str, Future[None]] = {}
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(HOSTS_AT_ONCE, thread_name_prefix="host-request")
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        kept_house_at = self._monotonic()
        while not self._closing.wait(TICK_S):
            try:
                self.tick()
                if self._monotonic() - kept_house_at >= HOUSEKEEPING_S:
                    kept_house_at = self._monotonic()
                    self.housekeeping()
            except Exception:
                # Ours: this tick is lost and shown, and the next looks again at what is.
                log.exception("a tick of the watch failed")

    def tick(self) -> None:
        """One look at every host."""
        now = self._parts.clock()
        live = [run for run in self._parts.store.live_runs() if run["id"] not in self._parts.starting]
        for host in self._parts.store.host_rows():
            runs = [run for run in live if run["host"] == host["key"]]
            for action in fleet.judge(self._view(host, runs, now), self._limits):
                self._act(action)
            for run in runs:
                if host["status"] == "ready":
                    self._catch_up(run)
                else:
                    self._asked.pop(run["id"], None)  # once it is back it is asked at once

    def settle(self) -> None:
        """Wait until the hosts have answered what was asked."""
        wait(self._busy.values())

    def housekeeping(self) -> None:
        store, wanted = self._parts.store, self._settings
        store.thin(fine_s=wanted.store.fine_s, keep_s=wanted.store.keep_hours * 3600.0)
        store.remind(every_s=wanted.alerts.reminder_every_s, most=wanted.alerts.reminders)
        self._parts.links.close_idle()

    def _view(self, host: Doc, runs: list[Doc], now: float) -> fleet.HostView:
        return fleet.HostView(
            key=host["key"],
            status=host["status"],
            since_s=max(0.0, now - host["since_at"]),
            told=bool(host["told"]),
            runs=tuple(self._run_view(run, now) for run in runs if not run["owner_elsewhere"]),
        )

    def _run_view(self, run: Doc, now: float) -> fleet.RunView:
        ensured = self._ensured.get(run["id"])
        return fleet.RunView(
            run_id=run["id"],
            news_age_s=None if run["news_at"] is None else max(0.0, now - run["news_at"]),
            silent_for_s=None if run["silent_since_at"] is None else now - run["silent_since_at"],
            silent_told=bool(run["silent_told"]),
            ensured_ago_s=None if ensured is None else self._monotonic() - ensured,
            awaited_s=max(0.0, now - run["goal_since_at"]),
        )

    def _act(self, action: fleet.FleetAction) -> None:
        if action.what != "ensure_agent":
            self._parts.store.tell(action.what, host=action.host, run_id=action.run_id)
            return
        self._ensured[action.run_id] = self._monotonic()
        self._ask(action.host, action.run_id, self._ensure_agent)

    def _catch_up(self, run: Doc) -> None:
        """Hand over what is wanted, where the host does not have it yet. A refusal is asked about ever more rarely."""
        run_id, generation, now = run["id"], run["generation"], self._monotonic()
        if run["owner_elsewhere"] or run["delivered"] >= generation:
            self._asked.pop(run_id, None)
            return
        asked = self._asked.get(run_id)
        if asked is None or asked.generation != generation:
            asked = _Asked(generation, 0, now)
        if now < asked.again_at:
            return
        if self._ask(run["host"], run_id, self._settle_start if run["delivered"] == 0 else self._deliver):
            first_s, most_s = ASK_AGAIN_S
            again_at = now + min(most_s, first_s * 2.0 ** min(asked.times, 16))
            self._asked[run_id] = _Asked(generation, asked.times + 1, again_at)

    def _ask(self, host: str, run_id: str, work: Callable[[HostLink, str], None]) -> bool:
        """Whether the host is being asked now: it has a link, and is not busy with an earlier request of this run."""
        link = self._parts.links.get(host)
        under_way = self._busy.get(run_id)
        if link is None or (under_way is not None and not under_way.done()):
            return False

        def ask() -> None:
            try:
                work(link, run_id)
            except LinkError as error:
                log.warning("a host did not do what it was asked run=%s code=%s: %s", run_id, error.code, error)
            except Exception:
                log.exception("a request to a host failed by a fault of ours run=%s", run_id)

        self._busy[run_id] = self._pool.submit(ask)
        return True

    def _ensure_agent(self, link: HostLink, run_id: str) -> None:
        spec = self._parts.store.spec(run_id)["spec"]
        op = {"op": "ensure_agent", "workspace": spec["workspace"], "run_id": run_id}
        answer = link.request(op, REQUEST_S)
        log.warning("a silent agent was looked after run=%s started=%s", run_id, answer.get("started"))
        ensure_session(link, spec, answer["command"])  # what ended the agent may have ended it too, as a reboot does
        self._parts.links.follow(link, run_id, spec["workspace"])

    def _deliver(self, link: HostLink, run_id: str) -> None:
        self._parts.handover.deliver(link, run_id)

    def _settle_start(self, link: HostLink, run_id: str) -> None:
        """A start that this daemon or its link did not live to see the end of: did the host get it?"""
        spec = self._parts.store.spec(run_id)["spec"]
        there = host_spec(link, spec["workspace"], run_id)
        if there is None:
            self._parts.store.end_undelivered(run_id, NEVER_CAME)
            return
        self._parts.store.set_delivered(run_id, there["generation"])
        self._ensure_agent(link, run_id)
