"""The network goes, and every process of ours is killed: no run is lost, none doubled, no record missing."""

from __future__ import annotations

import json
import random
import signal
import sys
import time

import pytest

from tests.e2e.product import Product
from tests.e2e.slack import SlackReceiver
from tests.lab import processes
from tests.lab.sshd import Sshd

# A trainer of somebody else, quick to start: one line a step, and it counts how many of it live.
TOY = """
import os, sys, time
folder = sys.argv[1]
mine = os.path.join(folder, "alive.%d" % os.getpid())
with open(mine, "w") as f:
    f.write(str(time.time()))
step = 0
while True:
    step += 1
    print("step=%d loss=%.3f" % (step, 5.0 / step), flush=True)
    time.sleep(0.2)
"""


def order(records: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(record["epoch"], record["seq"]) for record in records]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_cut_of_60_s_in_the_middle_of_a_crash_delays_records_and_loses_and_doubles_none(
    product: Product, sshd: Sshd
) -> None:
    run_id = product.start(fault="exception@30,slow@30:2", steps=5000)
    product.wait_step(run_id, 10)
    sshd.cut(60.0)
    began = time.monotonic()
    product.wait("the host restarted the run by itself", lambda: _attempts_on_host(product, run_id) == 2, 50.0)
    product.wait("the daemon says that it does not know", lambda: not product.run(run_id)["reachable"], 40.0)
    assert time.monotonic() - began < 60.0
    product.wait_step(run_id, 5, attempt=2)
    product.cli("stop", run_id, "--yes")
    product.wait_final(run_id)
    host = order(product.host_records(run_id))
    stored = order(product.records(run_id))
    assert stored == sorted(set(stored)), "in order, none twice"
    told = [key for key in host if key not in set(stored)]
    assert told == [], f"{len(told)} of {len(host)} records never came"
    assert product.attempts(run_id) == [1, 2]


def test_slack_that_is_down_delays_and_loses_nothing(product: Product, slack: SlackReceiver) -> None:
    slack.down = True
    run_id = product.start(fault="", steps=12)
    product.wait_final(run_id)
    assert slack.messages == []
    product.wait("the daemon tried", lambda: slack.refused > 0, 20.0)
    slack.down = False
    product.wait("both messages came", lambda: len(slack.messages) == 2, 30.0)
    assert "started" in slack.texts[0]


def test_a_restarted_daemon_takes_up_its_runs_where_it_left_them(product: Product) -> None:
    run_id = product.start()
    product.wait_step(run_id, 3)
    [daemon] = [p for p in processes.everything() if p.pid == product.daemon["pid"]]
    assert processes.send(daemon, signal.SIGKILL)
    before = product.trainers(run_id)
    step = json.loads((product.run_dir(run_id) / "attempts/1/progress.json").read_text())["step"]
    assert product.cli("ps").returncode in (0, 7)
    assert product.cli("daemon", "status").returncode == 7
    other = product.start_daemon()
    product.wait_step(run_id, step + 5)
    assert [p.pid for p in product.trainers(run_id)] == [p.pid for p in before]
    assert other.pid != daemon.pid
    stored = order(product.records(run_id))
    assert stored == sorted(set(stored))


@pytest.mark.long
@pytest.mark.timeout(400)
def test_60_random_kills_of_daemon_agents_and_keepers_never_lose_and_never_double_a_run(product: Product) -> None:
    rng = random.Random(20260303)
    runs = [_toy(product, f"r{index}") for index in range(6)]
    for run_id in runs:
        product.wait_step(run_id, 2)
    kills = 0
    while kills < 60:
        kills += _kill_some(product, rng.choice(runs), rng)
        doubled = [run_id for run_id in runs if len(product.trainers(run_id)) > 1]
        assert not doubled, f"two trainers of {doubled} after {kills} kills"
        time.sleep(rng.uniform(0.05, 0.5))
    if not _daemon(product):
        product.start_daemon()
    for run_id in runs:
        product.wait("one trainer lives", lambda run_id=run_id: len(product.trainers(run_id)) == 1, 30.0)
        product.wait("one agent lives", lambda run_id=run_id: len(product.ours(run_id, "run")) == 1, 60.0)
        product.wait("news arrive", lambda run_id=run_id: product.run(run_id)["news_age_s"] < 3.0, 60.0)
        began = list((product.run_dir(run_id).parents[2] / "alive").iterdir())
        assert len(began) == 1, "the trainer was never started a second time, for it never died"
        stored = order(product.records(run_id))
        assert stored == sorted(set(stored))


def _toy(product: Product, name: str) -> str:
    folder = product.workspace / name
    (folder / "alive").mkdir(parents=True)
    (folder / "toy.py").write_text(TOY)
    return product.start_command(sys.executable, str(folder / "toy.py"), str(folder / "alive"), folder=folder)


def _daemon(product: Product) -> list[processes.Process]:
    """This test's own: another daemon may run on this machine."""
    found = processes.look(int(product.daemon["pid"]))
    return [found] if found is not None and found.state not in "ZX" else []


def _attempts_on_host(product: Product, run_id: str) -> int:
    return len(list((product.run_dir(run_id) / "attempts").glob("*/child.json")))


def _kill_some(product: Product, run_id: str, rng: random.Random) -> int:
    """Kill one or all of the three; a daemon that is gone is brought back by its unit."""
    daemon, agent, keeper = _daemon(product), product.ours(run_id, "run"), product.ours(run_id, "keep")
    if not daemon:
        product.start_daemon()
    chosen = rng.choices([daemon, agent, keeper, daemon + agent + keeper], weights=[2, 5, 2, 1])[0]
    return sum(processes.send(process, signal.SIGKILL) for process in chosen)
