"""A message is enough on a phone, whatever the log put into it."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_supervise.alerts.message import compose, duration, evidence_text

BASE: dict[str, Any] = {"run_id": "demo-1", "name": "qwen-b16", "host": "lab8", "run_kind": "bundled"}
CRASH = {
    **BASE,
    "attempt": 1,
    "verdict": "crash",
    "cause": "cuda_oom",
    "sentence": "rank 3 ran out of memory",
    "key_line": "torch.OutOfMemoryError: CUDA out of memory.",
    "evidence": [
        {"what": "exit code", "value": 73},
        {"what": "memory GPU 3", "value": 79.5, "unit": "GiB", "age_s": 2.0},
    ],
    "response_text": "restarting (2 of 3)",
    "step": 120,
    "steps_total": 1000,
    "checkpoint_step": 117,
}


def test_the_first_line_says_who_where_what_and_what_is_done() -> None:
    message = compose("incident", "warn", CRASH)
    assert message.headline.startswith("\N{HEAVY MULTIPLICATION X} qwen-b16 on lab8: crash: ")
    assert message.headline.endswith(", restarting (2 of 3)")
    assert "memory" in message.headline.lower()


def test_cause_evidence_key_line_cost_and_two_commands_are_in_it() -> None:
    text = compose("incident", "warn", CRASH).text
    for words in (
        "rank 3 ran out of memory",
        "exit code: 73",
        "memory GPU 3: 79.5 GiB (2 s ago)",
        "torch.OutOfMemoryError",
        "Was at step 120 of 1000; 3 steps since the last complete checkpoint.",
        "dflash-supervise why demo-1",
        "dflash-supervise logs demo-1",
    ):
        assert words in text
    assert "http" not in text
    assert compose("incident", "warn", CRASH, "http://d:8000/").link == "http://d:8000/runs/demo-1"


def test_steps_without_any_checkpoint_are_not_called_saved() -> None:
    facts = {key: value for key, value in CRASH.items() if key != "checkpoint_step"}
    assert "no checkpoint is known" in compose("incident", "warn", facts).text


@pytest.mark.parametrize(
    ("kind", "facts", "words"),
    [
        ("started", {"gpus": 8}, "started on 8 GPUs"),
        ("started", {"gpus": 1}, "started on 1 GPU"),
        ("started", {}, "qwen-b16 on lab8: started"),
        ("started", {"run_kind": "adopted"}, "watched from now on"),
        ("done", {"step": 90, "loss": 1.25, "tau": 3.5}, "done at step 90"),
        ("stopped", {"step": 90}, "stopped by a person at step 90"),
        ("resolved", {"verdict": "hang", "cause": "stopped_process"}, "over: hang"),
        ("reminder", {"verdict": "hang", "cause": "none", "open_s": 14400.0}, "still open after 4.0 h: hang"),
        (
            "gave_up",
            {"verdict": "crash", "cause": "segfault", "response_text": "giving up: 3 restarts"},
            "giving up: 3",
        ),
        ("gave_up", {"verdict": "crash", "cause": "segfault"}, "given up"),
        ("refused", {"verdict": "stale_process", "cause": "zombie_gpu_memory"}, "not started: stale process"),
        ("silent", {"silent_s": 300.0}, "the agent says nothing for 5 min"),
        ("unreachable", {"name": "", "silent_s": 120.0, "runs": ["a", "b"]}, "lab8: no answer for 2 min (runs: a, b)"),
        ("reachable", {"name": ""}, "lab8: answers again"),
        ("incident", {"verdict": "host_unreachable", "cause": "ssh_connection_lost"}, "the connection is lost"),
    ],
)
def test_each_kind_has_its_first_line(kind: str, facts: dict[str, Any], words: str) -> None:
    assert words in compose(kind, "info", {**BASE, **facts}).headline


def test_a_cut_link_says_that_nothing_is_done_to_the_run() -> None:
    text = compose("unreachable", "page", {"host": "lab8", "silent_s": 120.0, "runs": ["a"], "fix": "check it"}).text
    assert "goes on by itself" in text and "check it" in text


def test_controls_and_reordering_characters_of_a_log_do_not_reach_the_reader() -> None:
    hostile = {**CRASH, "key_line": "a\x1b[31mb\u202ec\r\nd", "sentence": "x\x00y\u2066z"}
    text = compose("incident", "warn", hostile).text
    assert "a [31mbc d" in text and "x yz" in text
    assert not any(c in text for c in "\x1b\x00\r\u202e\u2066")


def test_a_first_line_is_cut_for_the_header() -> None:
    long = compose("gave_up", "page", {**CRASH, "response_text": "because " * 60}).headline
    assert len(long) == 150 and long.endswith("\N{HORIZONTAL ELLIPSIS}")


def test_unknown_is_said_and_ages_are_short() -> None:
    assert evidence_text({"what": "power GPU 3", "value": None, "unit": "W"}) == "power GPU 3: unknown W"
    assert [duration(s) for s in (45, 720, 12600)] == ["45 s", "12 min", "3.5 h"]
