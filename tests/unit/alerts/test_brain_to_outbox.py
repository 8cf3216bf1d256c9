"""From the real brain on its virtual clock, by the agent's own records, to the messages of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dflash_supervise.agent.journal import Told, incident_records, verdict_record
from dflash_supervise.core.policy import Policy
from tests.sim.played import gpus
from tests.sim.world import World
from tests.unit.store.writing import RUN, Writer, open_store, told

Doc = dict[str, Any]


class Journal:
    """Writes what an agent would of each tick of a world, in the agent's order."""

    def __init__(self, world: World) -> None:
        self.world, self.write, self._told, self._started = world, Writer(), Told(), 0

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            decision, now_s = self.world.tick(), self.world.now_s
            if len(self.world.trainers) > self._started:
                self._started = len(self.world.trainers)
                self.write.attempt_start(self._started)
            for ended in decision.ended:
                self.write.attempt_end(ended.number, ended.verdict.value, ended.cause)
            self._told, verdict = verdict_record(self._told, decision.assessment, now_s)
            if verdict is not None:
                self.write("verdict", **verdict)
            self._told, incidents = incident_records(self._told, decision.incidents, now_s)
            for incident in incidents:
                self.write("incident", **incident)

    def messages(self, folder: Path) -> tuple[list[str], list[Doc]]:
        """Kinds and messages, oldest first; each record on its own, as a slow line brings them."""
        store = open_store(folder)
        for record in self.write.written:
            store.apply(RUN, [record])
        return [kind for kind, _ in told(store)], store.messages()[::-1]


def watched(**world: Any) -> Journal:
    journal = Journal(World(gpus=gpus(2), **world))
    journal.run(60)
    assert journal.world.now_attempt is not None and journal.world.now_attempt.step > 10
    return journal


def test_a_crash_and_a_hang_cured_and_a_clean_end_are_four_messages(tmp_path: Path) -> None:
    journal = watched()
    journal.world.die(70, exc="RuntimeError", message="injected fault")
    journal.run(60)
    second = journal.world.now_attempt
    assert second is not None and second.number == 2
    second.mode = "blocked"
    journal.run(200)
    third = journal.world.now_attempt
    assert third is not None and third.number == 3
    journal.world.die(0, done=True)
    journal.run(5)
    kinds, messages = journal.messages(tmp_path)
    assert kinds == ["started", "incident", "incident", "done"], messages
    assert "injected fault" in messages[1]["key_line"] and "restarting" in messages[1]["response_text"]
    assert messages[2]["verdict"] == "hang" and messages[2]["evidence"] and "restarting" in messages[2]["response_text"]


def test_a_key_error_is_one_page_beside_the_start(tmp_path: Path) -> None:
    journal = watched()
    journal.world.die(70, exc="KeyError", message="'bucket'")
    journal.run(60)
    kinds, messages = journal.messages(tmp_path)
    assert len(kinds) == 2 and kinds[0] == "started", messages
    assert messages[1]["severity"] == "page" or messages[1]["cause"] == "bug_in_code"
    assert "KeyError" in messages[1]["key_line"] and "not restarted" in messages[1]["response_text"]


def test_a_kill_by_somebody_is_one_page_and_one_resolve(tmp_path: Path) -> None:
    journal = watched(policy=Policy(killed_wait_s=30.0))
    journal.world.die(signal=9)
    journal.run(120)
    kinds, messages = journal.messages(tmp_path)
    assert kinds == ["started", "incident", "resolved"], messages
    assert "somebody" in messages[1]["response_text"]


def test_a_start_on_gpus_that_stay_busy_is_refused_once(tmp_path: Path) -> None:
    journal = Journal(World(proof_free=False, foreign=True))
    journal.run(120)
    kinds, messages = journal.messages(tmp_path)
    assert kinds == ["refused"], messages
    assert messages[0]["verdict"] == "stale_process" and messages[0]["evidence"]


def test_a_crash_loop_ends_in_one_page_that_says_so(tmp_path: Path) -> None:
    journal = watched(policy=Policy(credit_steps=10**6))
    for _ in range(5):
        trainer = journal.world.now_attempt
        if trainer is not None and trainer.alive:
            journal.world.die(70, exc="OSError", message="remote end closed")
        journal.run(400)
    kinds, messages = journal.messages(tmp_path)
    pages = [one for one in messages if one["kind"] != "started" and "giving up" in one.get("response_text", "")]
    assert kinds[0] == "started" and len(pages) == 1, [(one["kind"], one.get("response_text")) for one in messages]
    assert messages[-1] == pages[0]
