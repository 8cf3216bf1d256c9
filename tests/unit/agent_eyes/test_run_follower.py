"""A follower tells its peer what is wrong and goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.agent.records import encode
from dflash_supervise.agent.run_follower import RunFollower

RUN = "toy-2611300501-ab12"
EPOCH = "000001-aaaa"


def test_a_fault_of_ours_is_told_to_the_peer_and_mutes_nothing_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    rows = [{"epoch": EPOCH, "seq": seq, "kind": "heartbeat"} for seq in (1, 2)]
    (folder / f"{EPOCH}.0001.jsonl").write_bytes(encode(rows[0]))
    told: list[dict[str, Any]] = []

    def send(line: dict[str, Any], wait: bool) -> bool:
        if line["t"] == "rec" and line["rec"]["seq"] == 1:
            raise TypeError("a fault of ours")
        told.append(line)
        if line["t"] == "follow_trouble" and line["message"]:
            with (folder / f"{EPOCH}.0001.jsonl").open("ab") as file:
                file.write(encode(rows[1]))
        if line["t"] == "rec":
            follower.stop()
        return True

    follower = RunFollower(str(tmp_path), RUN, None, (0, 0), send)
    follower._run()
    assert "a fault of ours" in told[0]["message"]
    assert [line["rec"]["seq"] for line in told if line["t"] == "rec"] == [2]


@pytest.mark.parametrize("child", ['{"log":5}', '{"log":"/a\\u0000b"}', "[" * 200_000, "{}"])
def test_a_log_that_is_named_in_another_shape_is_not_there(tmp_path: Path, child: str) -> None:
    folder = tmp_path / "attempts" / "1"
    folder.mkdir(parents=True)
    (folder / "child.json").write_text(child)
    follower = RunFollower(str(tmp_path), RUN, None, (0, 0), lambda line, wait: True)
    assert [follower._log() for _ in range(3)] == [False] * 3
    (tmp_path / "foreign.log").write_text("step 1")
    good = {"pid": None, "boot_id": "a", "adopted": True, "log": str(tmp_path / "foreign.log")}
    (folder / "child.json").write_text(json.dumps(good))
    assert follower._log() is True
