"""What a client may ask of the daemon: every key has its type, and a wrong one is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from dflash_supervise.daemon.control import DaemonControl
from dflash_supervise.daemon.request import parse_adopt, parse_doctor, parse_start
from dflash_supervise.web import WebSettings, create_app
from dflash_supervise.web.control import Refused
from tests.unit.daemon.conftest import Bench

Doc = dict[str, Any]

TOKEN = "t" * 43
DEEP: Any = "x"
for _level in range(100):
    DEEP = [DEEP]

HALF = "\ud800"  # JSON can write half a character, and nothing else can


@pytest.fixture
def program(made: Bench) -> Iterator[TestClient]:
    """A program before the real control; what it asks for is not carried out, for all of it is refused."""
    control = DaemonControl(made.parts, made.settings, trust=lambda _target, _key: "", stop=lambda: None)
    app = create_app(made.store, control, WebSettings(token=TOKEN, port=8000))
    headers = {"authorization": f"Bearer {TOKEN}"}
    with TestClient(app, "http://localhost:8000", raise_server_exceptions=False, headers=headers) as client:
        yield client


START: list[tuple[str, str]] = [
    ('"name": 5', "name must be a string"),
    ('"name": ["a"]', "name must be a string"),
    ('"name": ""', "name must be text"),
    ('"command": ""', "command must be a list of strings"),
    ('"command": {}', "command must be a list of strings"),
    ('"command": ["a\\u0000b"]', "command holds a NUL byte"),
    ('"command": ["a\\ud800"]', "command holds a NUL byte or half a character"),
    ('"command": [""]', "command begins with an empty program"),
    ('"set": 0', "set must be a list of strings"),
    ('"set": ["a=\\u0000"]', "set holds a NUL byte"),
    ('"env": []', "env must map names to text"),
    ('"env": {"A": null}', "env must map names to text"),
    ('"env": {"A=B": "x"}', "env has a variable of the name 'A=B'"),
    ('"env": {"": "x"}', "env has a variable of the name ''"),
    ('"env": {"A": "s3cret\\u0000"}', "env A: holds a NUL byte"),
    ('"gpus": true', "gpus must be"),
    ('"gpus": []', "gpus must be"),
    ('"gpus": [true]', "gpus must be"),
    ('"gpus": ["\\ud800"]', "gpus must be"),
    ('"python": ""', "python must be text"),
    ('"python": "/a\\u0000"', "python must be text without a NUL byte"),
    ('"resume": 5', "resume must be a string"),
    ('"train_file": []', "train_file must be a string"),
    ('"replace": "false"', "replace must be true or false"),
    ('"no_tmux": 1', "no_tmux must be true or false"),
    ('"detach": "yes"', "detach must be true or false"),
    ('"options": "x"', "options must be an object"),
    ('"options": [1]', "options must be an object"),
    ('"train": "x"', "train must be an object"),
    ('"train": {"text": 5}', "train must be"),
    ('"train": {"text": "a = ' + "[" * 5000 + '"}', "train is nested too deeply"),
    ('"train": {"text": "a' + ".a" * 5000 + ' = 1"}', "train is nested too deeply"),
    ('"train": {"text": "a = ' + "1" * 5000 + '"}', "train is not TOML"),
    ('"policy": [1]', "policy must be an object"),
    ('"policy": ""', "policy must be an object"),
    ('"policy": {"grace_s": 1e400}', "policy.grace_s: is inf; use seconds from 0 to 31622400 .366 days."),
    ('"policy": {"grace_s": NaN}', "policy.grace_s: is nan; use seconds"),
    ('"policy": {"grace_s": -1}', "policy.grace_s: is -1; it cannot be negative"),
    ('"policy": {"grace_s": 31622401}', "policy.grace_s: is 31622401; use seconds"),
    ('"policy": {"grace_s": 1' + "0" * 400 + "}", "policy.grace_s: is too large a number"),
    ('"policy": {"grace_s": {}}', "policy.grace_s: .* must be a number"),
    ('"policy": {"backoff_factor": 1e6}', "policy.backoff_factor: is 1000000.0; use a number from 0 to 1000"),
    ('"policy": {"max_restarts": -3}', "policy.max_restarts: is -3; it cannot be negative"),
    ('"policy": {"max_restarts": 1' + "0" * 40 + "}", "policy.max_restarts: is 10* *; use a number from 0 to"),
    ('"policy": {"max_restarts": true}', "policy.max_restarts: is true; it must be a whole number"),
    ('"policy": {"remedies": [1]}', "policy.remedies: .* must be a list of strings"),
    ('"policy": {"\\ud800": 1}', r"policy.\\ud800: unknown key"),
    ('"\\ud800": 1', "valid string"),
    ('"nmae": 1', "did you mean name"),
]
ADOPT: list[tuple[str, str]] = [
    ('"pid": "5"', "pid must be a whole number from 2"),
    ('"pid": true', "pid must be a whole number from 2"),
    ('"pid": 1', "pid must be a whole number from 2"),
    ('"pid": 1.5', "pid must be a whole number from 2"),
    ('"pid": 1e400', "pid must be a whole number from 2"),
    ('"tmux": 5', "tmux must be a string"),
    ('"tmux": ""', "tmux must be text"),
    ('"log": ["/w/x"]', "log must be a string"),
    ('"log": "x"', "log must be an absolute path"),
    ('"log": "/w/\\ud800"', "log must be text"),
    ('"pid": 5, "name": 5', "name must be a string"),
    ('"pid": 5, "name": "Big"', "lower-case"),
    ('"pid": 5, "tmux": "a"', "tmux and pid exclude each other"),
    ('"pid": 5, "options": "x"', "options must be an object"),
    ('"name": "mine"', "name goes with tmux, pid or log"),
    ('"pdi": 5', "did you mean pid"),
]
DOCTOR = [('"what": 1', "what: unknown key")]


@pytest.mark.parametrize(
    ("path", "keys", "said"),
    [(path, *row) for path, rows in (("/runs", START), ("/adopt", ADOPT), ("/doctor", DOCTOR)) for row in rows],
    ids=lambda value: value[:60],
)
def test_a_key_of_the_wrong_type_is_refused_by_its_name_before_anything_is_contacted(
    made: Bench, program: TestClient, path: str, keys: str, said: str
) -> None:
    body = f'{{"target": "lab8:/w", {keys}}}'
    answer = program.post(f"/api/v1{path}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["exit_code"] == 2 and "s3cret" not in answer.text
    assert re.search(said, error["message"]), error["message"]
    assert made.host.asked == [] and made.store.runs() == []


def test_what_is_nested_deeper_than_anybody_reads_is_refused() -> None:
    with pytest.raises(Refused, match="options is nested too deeply"):
        parse_start({"target": "lab8:/w", "options": {"a": DEEP}}, {})
    with pytest.raises(Refused, match="options is nested too deeply"):
        parse_adopt({"target": "lab8:/w", "pid": 5, "options": {"a": DEEP}})


@pytest.mark.parametrize("target", [None, 5, ["lab8:/w"], "", f"lab8:/{HALF}", "lab8:/\0"])
def test_a_target_that_is_no_text_is_refused_by_all_who_take_one(target: Any) -> None:
    for parse in (lambda doc: parse_start(doc, {}), parse_adopt, parse_doctor):
        if target is None and parse is parse_doctor:
            assert parse_doctor({"target": None}) is None, "this machine"
            continue
        with pytest.raises(Refused, match="target") as error:
            parse({"target": target})
        assert error.value.exit_code == 2


def test_null_is_as_good_as_absent() -> None:
    keys = ("command", "name", "gpus", "env", "python", "policy", "train", "train_file", "set", "resume")
    more = ("detach", "no_tmux", "replace", "options")
    assert parse_start({"target": "lab8:/w", **dict.fromkeys((*keys, *more))}, {}) == parse_start(
        {"target": "lab8:/w"}, {}
    )
    assert parse_adopt({"target": "lab8:/w", **dict.fromkeys(("tmux", "pid", "log", "name", "options"))}).takes_over


def test_a_word_of_a_command_may_be_bytes_that_are_no_utf_8() -> None:
    request = parse_start({"target": "lab8:/w", "command": ["cat", "caf\udce9"], "env": {"A": "\udce9"}}, {})
    assert request.command == ("cat", "caf\udce9") and request.env == {"A": "\udce9"}


def test_the_ends_of_a_policys_ranges_are_in_them() -> None:
    ends = {"grace_s": 366 * 86400, "backoff_factor": 1000, "max_restarts": 0, "disk_low_bytes": 2**50, "window_s": 0}
    policy = parse_start({"target": "lab8:/w", "policy": ends}, {}).policy
    assert {key: policy[key] for key in ends} == ends
