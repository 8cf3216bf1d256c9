"""``diagnose``: a log of this machine, without a daemon."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Invoke

LOG = """step=7 loss=2.1 tok/s=900
[rank3]: Traceback (most recent call last):
[rank3]: KeyError: '\x1b]0;evil\x07bucket'
"""


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "train.log"
    path.write_text(LOG)
    return str(path)


def test_a_log_is_diagnosed_in_json_with_every_key_of_the_contract(invoke: Invoke, log: str, state_dir: Path) -> None:
    ran = invoke("diagnose", log, "--exit-code", "1", "--json")
    found = json.loads(ran.out)
    assert (ran.code, ran.err, state_dir.exists()) == (0, "", False)
    assert list(found) == [
        *("schema", "verdict", "cause", "key_line", "key_line_number", "rank", "action", "restartable", "reason"),
        "evidence",
    ]
    assert (found["schema"], found["verdict"], found["cause"]) == (1, "crash", "bug_in_code")
    assert (found["key_line_number"], found["rank"], found["restartable"]) == (3, "3", False)


def test_people_read_the_verdict_the_line_why_and_what_to_do(invoke: Invoke, log: str) -> None:
    text = invoke("diagnose", log, "--exit-code", "1").out
    for part in ("crash, bug_in_code", "line 3, rank 3", "KeyError: 'bucket'", "exit code: 1", "do not start it again"):
        assert part in text
    assert "\x1b" not in text and "\x07" not in text
    assert "the log's last line" in invoke("diagnose", log, "--signal", "TERM").out.replace(
        "line 3", "the log's last line"
    )


def test_a_context_is_read_and_an_option_wins_over_it(invoke: Invoke, log: str, tmp_path: Path) -> None:
    context = tmp_path / "seen.json"
    context.write_text(json.dumps({"exit_code": 1, "signal": "SIGKILL", "observed": {"kernel_log": []}, "gpu": []}))
    assert json.loads(invoke("diagnose", log, "--context", str(context), "--json").out)["cause"] == "killed_externally"
    found = json.loads(invoke("diagnose", log, "--context", str(context), "--signal", "11", "--json").out)
    assert found["cause"] == "bug_in_code"


def test_stdin_is_a_log_too(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"bash: torchrun: command not found\n")))
    assert json.loads(invoke("diagnose", "-", "--exit-code", "127", "--json").out)["cause"] == "command_not_found"


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ("no json", "is no JSON"),
        ("[]", "must be an object"),
        ('{"observed": 3}', "observed must be an object"),
        ('{"gpu": [1]}', "gpu must be a list of objects"),
        ('{"exit_code": "1"}', "exit_code must be a whole number"),
        ('{"signal": "SIGNOTHING"}', "is no signal"),
        (" " * ((8 << 20) + 1), "larger than 8 MiB"),
    ],
)
def test_a_context_that_cannot_be_read_is_refused(
    invoke: Invoke, log: str, tmp_path: Path, context: str, said: str
) -> None:
    path = tmp_path / "seen.json"
    path.write_text(context)
    ran = invoke("diagnose", log, "--context", str(path))
    assert ran.code == 2 and said in ran.err


def test_what_cannot_be_read_exits_2_and_says_why(invoke: Invoke, log: str, tmp_path: Path) -> None:
    missing = invoke("diagnose", str(tmp_path / "none.log"))
    assert missing.code == 2 and "cannot be read: No such file" in missing.err
    folder = invoke("diagnose", str(tmp_path), "--json")
    assert folder.code == 2 and json.loads(folder.out)["error"]["code"] == "unreadable"
    assert invoke("diagnose", log, "--context", str(tmp_path)).code == 2
    assert invoke("diagnose", log, "--signal", "SIGNOTHING").code == 2
