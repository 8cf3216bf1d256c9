"""A store and a daemon made of plain values."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from dflash_supervise.web.control import Doc, Refused


class FakeStore:
    """What the daemon's store would answer; ``put_*`` is what applying records would do."""

    def __init__(self) -> None:
        self.docs: dict[str, Doc] = {}
        self.verdicts: dict[str, Doc] = {}
        self.incident_docs: list[Doc] = []
        self.rows: list[Doc] = []
        self.logs: dict[str, tuple[int, bytes]] = {}
        self.series_docs: dict[str, Doc] = {}
        self.broken = False

    def put_run(self, doc: Doc) -> None:
        self.docs[doc["id"]] = doc

    def put_record(self, run_id: str, record: Doc) -> int:
        row = self.last_row() + 1
        self.rows.append({"row": row, "run": run_id, "record": {"v": 1, "run": run_id, **record}})
        if record["kind"] == "verdict":
            self.verdicts[run_id] = record
        return row

    def runs(self) -> list[Doc]:
        return [self._aged(doc) for doc in self.docs.values()]

    def run(self, name: str) -> Doc | None:
        named = [doc for doc in self.docs.values() if name in (doc["id"], doc["name"])]
        return self._aged(named[-1]) if named else None

    def why(self, run_id: str) -> Doc | None:
        mine = [item for item in self.incident_docs if item["run"] == run_id]
        mine.sort(key=lambda item: item["state"] == "resolved")
        return {
            "run": self._aged(self.docs[run_id]),
            "verdict": self.verdicts.get(run_id),
            "incidents": mine,
            "age_s": 1.0,
        }

    def records(
        self, run_id: str, *, after: int = 0, kinds: Sequence[str] = (), limit: int = 500, newest: bool = False
    ) -> list[Doc]:
        found = [
            {**item["record"], "row": item["row"]}
            for item in self.rows
            if item["run"] == run_id and item["row"] > after and (not kinds or item["record"]["kind"] in kinds)
        ]
        return found[-limit:] if newest else found[:limit]

    def log(
        self,
        run_id: str,
        *,
        attempt: int | None = None,
        offset: int | None = None,
        limit: int = 65536,
        tail: int | None = None,
    ) -> Doc | None:
        if run_id not in self.logs or (attempt is not None and attempt != self.logs[run_id][0]):
            return None
        number, data = self.logs[run_id]
        at = max(0, len(data) - limit) if offset is None else offset
        part = data[at : at + limit]
        after = at + len(part)
        if tail is not None:
            part = b"".join(re.findall(rb"[^\n]*\n|[^\n]+", part)[-tail:])
        text = part.decode("utf-8", "replace")
        return {"attempt": number, "offset": after - len(part), "next": after, "size": len(data), "text": text}

    def series(self, run_id: str, *, since_s: float) -> Doc:
        return self.series_docs.get(run_id, {"t": [], "loss": [], "tokens_per_s": [], "gpus": {}})

    def incidents(self) -> list[Doc]:
        return sorted(self.incident_docs, key=lambda item: item["state"] == "resolved")

    def last_row(self) -> int:
        if self.broken:
            raise OSError("the disk is gone")
        return self.rows[-1]["row"] if self.rows else 0

    def feed(self, after: int, limit: int) -> list[Doc]:
        return [item for item in self.rows if item["row"] > after][:limit]

    def _aged(self, doc: Doc) -> Doc:
        at = doc.get("news_unix")
        return {**doc, "news_age_s": None if at is None else max(0.0, time.time() - at)}


class FakeControl:
    """Remembers what it was asked; refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.refusal: Refused | None = None
        self.host_docs: list[Doc] = []

    def start(self, request: Doc) -> str:
        return self._ask("start", request) or "op-1"

    def operation(self, operation_id: str) -> Doc | None:
        if operation_id != "op-1":
            return None
        return {"state": "done", "lines": ["pushed the agent"], "run_id": "qwen-b16-1", "error": None}

    def set_goal(self, run_id: str, goal: Doc) -> Doc:
        self._ask("set_goal", (run_id, goal))
        return {"generation": 4, "acknowledged": False}

    def adopt(self, request: Doc) -> str:
        return self._ask("adopt", request) or "op-1"

    def doctor(self, request: Doc) -> str:
        return self._ask("doctor", request) or "op-1"

    def trust(self, target: str, fingerprint: str) -> Doc:
        self._ask("trust", (target, fingerprint))
        return {"trusted": True}

    def hosts(self) -> list[Doc]:
        return list(self.host_docs)

    def shutdown(self) -> None:
        self._ask("shutdown", None)

    def _ask(self, what: str, value: Any) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append((what, value))
        return ""
