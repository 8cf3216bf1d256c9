"""The API's shapes and errors."""

from __future__ import annotations

import pytest

from tests.unit.web.conftest import Dashboard
from tests.unit.web.story import FX_LINE

RUN_KEYS = {
    "id", "name", "host", "target", "workspace", "kind", "preset", "goal", "verdict", "cause", "sentence", "suspected",
    "phase", "attempt", "step", "steps_total", "loss", "tokens_per_s", "tau", "eta_s", "gpus", "news_at", "news_age_s",
    "reachable", "unreachable_since", "created_at", "final", "exit_status", "open_incidents", "notes",
}  # fmt: skip


def test_the_list_of_runs_has_a_schema_and_whole_runs(dashboard: Dashboard) -> None:
    answer = dashboard.program().get("/api/v1/runs").json()
    assert answer["schema"] == 1
    assert len(answer["runs"]) == 6
    assert all(run.keys() >= RUN_KEYS for run in answer["runs"])


def test_a_run_is_found_by_its_name_and_by_its_id(dashboard: Dashboard) -> None:
    client = dashboard.program()
    by_name = client.get("/api/v1/runs/llama-anchor").json()
    assert client.get(f"/api/v1/runs/{by_name['id']}").json()["id"] == by_name["id"]


@pytest.mark.parametrize("tail", ["", "/why", "/records", "/log", "/series"])
def test_an_unknown_run_is_a_404_with_the_exit_code_of_the_command_line(dashboard: Dashboard, tail: str) -> None:
    answer = dashboard.program().get(f"/api/v1/runs/nobody{tail}")
    assert answer.status_code == 404
    assert answer.json()["error"]["exit_code"] == 102


def test_why_has_the_verdict_with_its_findings_and_the_incidents(dashboard: Dashboard) -> None:
    why = dashboard.program().get("/api/v1/runs/llama-anchor/why").json()
    assert why["run"]["verdict"] == "partial_stall"
    assert why["verdict"]["findings"][0]["evidence"][0]["what"] == "step of train-2"
    assert [item["state"] for item in why["incidents"]] == ["open"]


def test_records_are_filtered_by_kind_and_continued_by_row(dashboard: Dashboard) -> None:
    client = dashboard.program()
    starts = client.get("/api/v1/runs/llama-anchor/records?kind=attempt_start,attempt_end").json()["records"]
    assert [record["kind"] for record in starts] == ["attempt_start", "attempt_end", "attempt_start"]
    query = {"kind": "attempt_start", "after": starts[0]["row"]}
    rest = client.get("/api/v1/runs/llama-anchor/records", params=query).json()
    assert [record["row"] for record in rest["records"]] == [starts[2]["row"]]


def test_the_tail_of_a_log_counts_lines_by_line_feeds_alone(dashboard: Dashboard) -> None:
    run = dashboard.store.run("qwen-b16")
    assert run is not None
    dashboard.store.logs[run["id"]] = (1, "one\ntwo \x0b\u2028 still two\nthr\u00e9e\n".encode())
    answer = dashboard.program().get("/api/v1/runs/qwen-b16/log?tail=2").json()
    assert answer["text"] == "two \x0b\u2028 still two\nthr\u00e9e\n"
    size = len("one\ntwo \x0b\u2028 still two\nthr\u00e9e\n".encode())
    assert (answer["offset"], answer["next"], answer["size"]) == (4, size, size)


def test_the_tail_of_a_log_with_bytes_that_are_no_text_still_says_where_it_begins(dashboard: Dashboard) -> None:
    run = dashboard.store.run("qwen-b16")
    assert run is not None
    dashboard.store.logs[run["id"]] = (1, b"one\ntw\xff\xffo\n")
    answer = dashboard.program().get("/api/v1/runs/qwen-b16/log?tail=1").json()
    assert answer == {"attempt": 1, "offset": 4, "next": 10, "size": 10, "text": "tw\ufffd\ufffdo\n"}


def test_a_log_that_does_not_exist_is_empty_and_no_error(dashboard: Dashboard) -> None:
    answer = dashboard.program().get("/api/v1/runs/seed-picture/log").json()
    assert answer == {"attempt": None, "offset": 0, "next": 0, "size": 0, "text": ""}


def test_a_loss_that_is_no_number_is_null(dashboard: Dashboard) -> None:
    run = dashboard.store.run("qwen-b16")
    assert run is not None
    dashboard.store.put_run({**dashboard.store.docs[run["id"]], "loss": float("nan")})
    assert dashboard.program().get("/api/v1/runs/qwen-b16").json()["loss"] is None


def test_a_start_is_handed_on_as_it_came(dashboard: Dashboard) -> None:
    request = {"target": "lab8:/workspace", "command": ["python", "train.py"], "policy": {"preset": "careful"}}
    answer = dashboard.program().post("/api/v1/runs", json=request)
    assert (answer.status_code, answer.json()) == (202, {"operation": "op-1"})
    assert dashboard.control.asked == [("start", request)]
    assert dashboard.program().get("/api/v1/operations/op-1").json()["state"] == "done"
    assert dashboard.program().get("/api/v1/operations/op-9").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/runs", {}, "target"),
        ("/runs", {"target": ""}, "target"),
        ("/adopt", {"target": 5}, "target"),
        ("/runs/qwen-b16/goal", {"want": "explode", "yes": True}, "want"),
        ("/runs/qwen-b16/goal", {"want": "hold", "hold_for_s": -1, "yes": True}, "hold_for_s"),
        ("/runs/qwen-b16/goal", {"want": "hold", "hold_for_s": 1e15, "yes": True}, "hold_for_s"),
        ("/runs/qwen-b16/goal", {"want": "run", "end_attempt": -1, "yes": True}, "end_attempt"),
        ("/runs/qwen-b16/goal", {"want": "run", "end_attempt": True, "yes": True}, "end_attempt"),
        ("/runs/qwen-b16/goal", {"want": "stop", "yes": True, "sudo": 1}, "sudo"),
        ("/hosts/trust", {"target": "lab8:/w"}, "fingerprint"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_asked(
    dashboard: Dashboard, path: str, body: dict[str, object], field: str
) -> None:
    answer = dashboard.program().post(f"/api/v1{path}", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(f"{field}: ")
    assert answer.json()["error"]["exit_code"] == 2
    assert dashboard.control.asked == []


def test_a_goal_must_be_confirmed(dashboard: Dashboard) -> None:
    answer = dashboard.program().post("/api/v1/runs/qwen-b16/goal", json={"want": "stop"})
    assert answer.json()["error"]["code"] == "not_confirmed"
    assert dashboard.control.asked == []


def test_a_restart_names_the_attempt_that_is_current_now(dashboard: Dashboard) -> None:
    body = {"want": "run", "end_attempt": "current", "yes": True}
    dashboard.program().post("/api/v1/runs/llama-anchor/goal", json=body)
    assert dashboard.control.asked[0][1][1] == {"want": "run", "end_attempt": 2}


def test_trust_doctor_and_shutdown_reach_the_daemon(dashboard: Dashboard) -> None:
    client = dashboard.program()
    assert client.post("/api/v1/hosts/trust", json={"target": "lab8:/w", "fingerprint": "SHA256:x"}).status_code == 200
    assert client.post("/api/v1/doctor", json={}).status_code == 202
    assert client.post("/api/v1/daemon/stop").status_code == 202
    assert [what for what, _ in dashboard.control.asked] == ["trust", "doctor", "shutdown"]


def test_health_is_open_and_readiness_asks_the_store(dashboard: Dashboard) -> None:
    client = dashboard.client()
    assert client.get("/healthz").json() == {"ok": True}
    assert client.get("/readyz").status_code == 200
    dashboard.store.broken = True
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503


def test_the_schema_of_the_api_is_served_and_pages_are_not_in_it(dashboard: Dashboard) -> None:
    paths = dashboard.program().get("/api/v1/openapi.json").json()["paths"]
    assert "/api/v1/runs/{name}/why" in paths
    assert "/runs/{name}" not in paths


def test_the_key_line_travels_untouched(dashboard: Dashboard) -> None:
    assert dashboard.program().get("/api/v1/incidents").json()["incidents"][0]["key_line"] == FX_LINE
