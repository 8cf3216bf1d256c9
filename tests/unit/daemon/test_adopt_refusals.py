"""An adoption that the host does not take leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_supervise.daemon import adopt
from dflash_supervise.daemon.operations import Failed
from dflash_supervise.daemon.request import parse_adopt
from dflash_supervise.link import errors
from tests.unit.daemon.conftest import Bench

Doc = dict[str, Any]

LOG = {"target": "lab8:/w", "log": "/w/out.log", "options": {"tick_s": 0.1}}


@pytest.mark.parametrize("what", [LOG, {"target": "lab8:/w", "pid": 4321}, {"target": "lab8:/w", "tmux": "train"}])
@pytest.mark.parametrize(
    ("code", "exit_code"), [("workspace_missing", 5), ("workspace_not_writable", 5), ("unsafe_workspace", 6)]
)
def test_a_workspace_that_takes_no_records_is_refused_before_there_is_a_run(
    made: Bench, what: Doc, code: str, exit_code: int
) -> None:
    made.host.look = {"blockers": [{"code": code, "message": "/w is not a folder", "fix": "mkdir -p /w"}]}
    with pytest.raises(Failed, match="/w is not a folder") as error:
        adopt.adopt(made.parts, parse_adopt(what), {}, made.operation())
    doc = error.value.doc
    assert (doc["code"], doc["exit_code"], doc["fix"]) == (code, exit_code, "mkdir -p /w")
    assert made.store.runs() == [] and made.host.specs == {} and made.host.options == {}
    assert [op["op"] for op in made.host.asked] == ["preflight"]


def test_what_only_a_start_needs_does_not_keep_anybody_from_watching(made: Bench) -> None:
    blockers = [{"code": code, "message": "", "fix": ""} for code in ("tmux_missing", "disk_full", "live_run")]
    made.host.look = {"blockers": blockers}
    operation = made.operation()
    adopt.adopt(made.parts, parse_adopt(LOG), {}, operation)
    assert operation.run_id in made.host.specs


def test_a_spec_that_the_host_refuses_leaves_no_adopted_run_behind(made: Bench) -> None:
    made.host.refuse["spec"] = errors.AgentRefusal("workspace_missing", "/w is not a folder", fix="mkdir -p /w")
    operation = made.operation()
    with pytest.raises(errors.AgentRefusal) as error:
        adopt.adopt(made.parts, parse_adopt(LOG), {}, operation)
    assert error.value.exit_code == 5
    assert made.store.runs() == [] and operation.run_id is None and made.parts.starting == set()


def test_an_adoption_that_may_have_arrived_is_kept_and_the_host_decides(made: Bench) -> None:
    made.host.refuse["spec"] = errors.RequestTimeout("no answer to spec")
    operation = made.operation()
    with pytest.raises(errors.RequestTimeout):
        adopt.adopt(made.parts, parse_adopt(LOG), {}, operation)
    assert operation.run_id is not None and made.store.run(operation.run_id) is not None
