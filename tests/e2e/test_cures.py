"""The main job over real SSH and tmux with the real trainer: faults are seen, named and cured, or rightly not."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.product import Product
from tests.e2e.slack import SlackReceiver
from tests.fakes.gpus import FakeGpus
from tests.lab import processes


@pytest.mark.long
@pytest.mark.timeout(300)
def test_one_run_lives_through_an_error_a_segfault_and_a_hang_and_completes(
    product: Product, slack: SlackReceiver
) -> None:
    run_id = product.start(fault="exception@12,segfault@22:2,hang-lock@120:3", steps=130)
    run = product.wait_final(run_id, within_s=200.0)
    assert (run["verdict"], run["attempt"]) == ("completed", 4), product.told()
    assert product.attempts(run_id) == [1, 2, 3, 4]
    ends = {r["attempt"]: (r["verdict"], r["cause"]) for r in product.records(run_id, "attempt_end")}
    assert ends == {
        1: ("crash", "rank_exception"),
        2: ("crash", "segfault"),
        3: ("hang", "lock_deadlock"),
        4: ("completed", "none"),
    }
    log = (product.run_dir(run_id) / "attempts" / "2" / "train.log").read_text()
    assert "step=11 " in log and "step=10 loss" not in log, "attempt 2 went on from the checkpoint of step 10"
    assert all(one["state"] == "resolved" for one in product.incidents(run_id).values())
    assert product.trainers(run_id) == []
    product.wait("Slack has heard it all", lambda: len(slack.messages) >= 5, 20.0)
    texts = slack.texts
    assert len(texts) == 5, texts
    assert "started" in texts[0]
    assert "injected fault" in texts[1] and "restarting" in texts[1]
    assert "segmentation fault" in texts[2].lower()
    assert "hang" in texts[3].lower() or "wait for each other" in texts[3]
    assert "done" in texts[4].lower() or "completed" in texts[4].lower()


def test_a_key_error_is_named_a_bug_and_not_restarted(product: Product) -> None:
    run_id = product.start(fault="keyerror@5")
    run = product.wait_final(run_id)
    assert (run["verdict"], run["cause"], run["attempt"]) == ("crash", "bug_in_code", 1)
    assert "KeyError" in product.cli("why", run_id).stdout
    assert product.cli("status", run_id).returncode == 100


def test_a_kill_by_somebody_is_held_paged_and_restarted_once(product: Product, slack: SlackReceiver) -> None:
    run_id = product.start()
    product.wait_step(run_id, 3)
    [trainer] = product.trainers(run_id)
    assert processes.send(trainer, signal.SIGKILL)
    product.wait_verdict(run_id, "crash", "killed_externally")
    incident = next(one for one in product.incidents(run_id).values() if one["cause"] == "killed_externally")
    assert incident["severity"] == "page"
    product.wait_step(run_id, 3, attempt=2)
    ended = next(r for r in product.records(run_id, "attempt_end"))
    began = next(r for r in product.records(run_id, "attempt_start") if r["attempt"] == 2)
    assert began["t_s"] - ended["t_s"] >= 4.0
    assert any("somebody" in text for text in slack.texts), slack.texts


def test_a_stopped_process_is_named_and_continued_once(product: Product) -> None:
    run_id = product.start()
    product.wait_step(run_id, 3)
    [trainer] = product.trainers(run_id)
    assert processes.send(trainer, signal.SIGSTOP)
    product.wait_verdict(run_id, "hang", "stopped_process")
    product.wait("it runs again", lambda: product.run(run_id)["verdict"] == "running", 30.0)
    acts = [record["type"] for record in product.records(run_id, "action")]
    assert acts.count("Continue") == 1 and "Stop" not in acts
    assert product.trainers(run_id)[0].pid == trainer.pid


def test_a_command_that_does_not_exist_is_an_early_crash_that_says_so(product: Product) -> None:
    run_id = product.start_command("/no/such/trainer", "--steps", "5")
    run = product.wait_final(run_id)
    assert (run["verdict"], run["cause"], run["attempt"]) == ("early_crash", "command_not_found", 1)
    assert "/no/such/trainer" in product.cli("why", run_id).stdout


def test_an_import_error_is_named_and_not_repeated(product: Product) -> None:
    run_id = product.start(fault="import-error")
    run = product.wait_final(run_id)
    assert (run["verdict"], run["cause"], run["attempt"]) == ("early_crash", "import_error", 1)
    assert product.attempts(run_id) == [1]


def test_a_leftover_of_an_earlier_run_on_a_gpu_is_ended_before_the_launch(
    product: Product, fake_gpus: FakeGpus
) -> None:
    first = product.start_command("/bin/sh", "-c", "echo step=1 loss=1; exit 3")
    product.wait_final(first)
    orphan = product.leave_behind(first)
    fake_gpus.hold(2, orphan.pid, 5 * 2**30)
    run_id = product.start_command("/bin/sh", "-c", "for i in 1 2 3 4 5; do echo step=$i loss=1; sleep 1; done")
    product.wait_final(run_id)
    assert orphan.poll() is not None
    kinds = [record["type"] for record in product.records(run_id, "action")]
    assert kinds.index("EndStale") < kinds.index("Launch")


def test_a_clean_end_is_completed(product: Product) -> None:
    run_id = product.start(fault="", steps=12)
    run = product.wait_final(run_id)
    assert (run["verdict"], run["attempt"], run["exit_status"]) == ("completed", 1, 0)
    assert product.cli("status", run_id).returncode == 0
    assert (product.run_dir(run_id) / "attempts" / "1" / "done.json").exists()


def test_a_persons_stop_saves_and_proves_and_launches_nothing(product: Product) -> None:
    run_id = product.start()
    product.wait_step(run_id, 3)
    done = product.cli("stop", run_id, "--yes")
    assert done.returncode == 0, done.stderr
    run = product.wait_final(run_id)
    assert (run["verdict"], run["attempt"]) == ("stopped", 1)
    assert product.trainers(run_id) == []
    exit_json = product.run_dir(run_id) / "attempts" / "1" / "exit.json"
    assert '"code": 143' in exit_json.read_text().replace('"code":143', '"code": 143')
    outcome = [record for record in product.records(run_id, "outcome") if record["type"].lower() == "stop"]
    assert outcome and outcome[-1]["ok"]
