"""The JSON API that the command line uses; shapes are those of the store and the daemon, errors are all alike."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, field_validator

from dflash_supervise.core.policy import MOST_S
from dflash_supervise.web.control import Control, Doc, Reads, Refused
from dflash_supervise.web.session import LINK_LIFE_S, Sessions

MAX_LOG_BYTES = 4 * 1024 * 1024
TAIL_BYTES = 256 * 1024
SCHEMA = 1


class TargetRequest(BaseModel):
    """What names a host and a workspace; further keys go to the daemon, which knows them and names the unknown."""

    model_config = ConfigDict(extra="allow")

    target: str = Field(min_length=1, max_length=1024)


class DoctorRequest(BaseModel):
    model_config = ConfigDict(extra="allow")

    target: str | None = Field(default=None, max_length=1024)


MOST_ATTEMPTS = 10**9


class GoalRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    want: Literal["run", "stop", "hold"]
    hold_for_s: float | None = Field(default=None, gt=0, le=MOST_S, allow_inf_nan=False)
    end_attempt: Any = None  # a number, or "current"
    yes: bool = False

    @field_validator("end_attempt")
    @classmethod
    def _attempt(cls, value: Any) -> Any:
        if value in (None, "current") or (type(value) is int and 0 <= value <= MOST_ATTEMPTS):
            return value
        raise ValueError('want the number of an attempt, or "current"')


class LoginRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    run: str | None = Field(default=None, min_length=1, max_length=256)


class TrustRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    target: str = Field(min_length=1, max_length=1024)
    fingerprint: str = Field(min_length=1, max_length=256)


def api_router(store: Reads, control: Control, sessions: Sessions) -> APIRouter:
    """Everything under ``/api/v1``."""
    router = APIRouter(prefix="/api/v1")
    _add_reads(router, store, control)
    _add_run_reads(router, store)
    _add_writes(router, store, control)

    @router.post("/login")
    def login_link(request: Request, wanted: LoginRequest | None = None) -> Doc:
        """A link that signs one browser in, and leads to the page of ``run`` where one is named."""
        if not request.state.bearer:
            raise Refused(
                "unauthorized",
                "Only a bearer token makes a link.",
                "Run `dflash-supervise open`.",
                exit_code=2,
                http_status=401,
            )
        name = wanted.run if wanted is not None else None
        page = f"&next=/runs/{found(store.run(name), name)['id']}" if name is not None else ""
        return {"path": f"/login?token={sessions.new_link()}{page}", "expires_s": LINK_LIFE_S}

    return router


def found(doc: Doc | None, name: str) -> Doc:
    """Raises Refused (404, exit code 102)."""
    if doc is None:
        raise Refused(
            "no_such_run",
            f"There is no run {name}.",
            "See the names with `dflash-supervise ps -a`.",
            exit_code=102,
            http_status=404,
        )
    return doc


def _add_reads(router: APIRouter, store: Reads, control: Control) -> None:
    @router.get("/runs")
    def runs() -> Doc:
        return {"schema": SCHEMA, "runs": store.runs()}

    @router.get("/incidents")
    def incidents() -> Doc:
        return {"schema": SCHEMA, "incidents": store.incidents()}

    @router.get("/hosts")
    def hosts() -> Doc:
        return {"schema": SCHEMA, "hosts": control.hosts()}

    @router.get("/operations/{operation_id}")
    def operation(operation_id: str) -> Doc:
        doc = control.operation(operation_id)
        if doc is None:
            raise Refused(
                "no_such_operation",
                f"There is no operation {operation_id}.",
                "Operations are forgotten when the daemon restarts; look at the run itself.",
                exit_code=4,
                http_status=404,
            )
        return doc


def _add_run_reads(router: APIRouter, store: Reads) -> None:
    @router.get("/runs/{name}")
    def run(name: str) -> Doc:
        return found(store.run(name), name)

    @router.get("/runs/{name}/why")
    def why(name: str) -> Doc:
        """The verdict in force as the host told it ``run.verdict_age_s`` ago (null: not known), and what it rests on.

        Ages of evidence and the seconds in ``next`` count from then; ``held_s`` of what is suspected has gone on for
        as long as the host has watched since. ``readings`` are the newest observation in rows of what, value, unit
        and age; null is not known. An incident's evidence was told ``told_age_s`` ago.
        """
        return found(store.why(found(store.run(name), name)["id"]), name)

    @router.get("/runs/{name}/records")
    def records(
        name: str,
        after: int = Query(0, ge=0, le=2**62),
        kind: str = "",
        limit: int = Query(500, ge=1, le=5000),
        newest: bool = False,
    ) -> Doc:
        run_id = found(store.run(name), name)["id"]
        kinds = tuple(part for part in kind.split(",") if part)
        return {"records": store.records(run_id, after=after, kinds=kinds, limit=limit, newest=newest)}

    @router.get("/runs/{name}/log")
    def log(
        name: str,
        attempt: int | None = Query(None, ge=0),
        offset: int | None = Query(None, ge=0),
        limit: int = Query(65536, ge=1, le=MAX_LOG_BYTES),
        tail: int | None = Query(None, ge=1, le=10000),
    ) -> Doc:
        """Bytes from ``offset`` on, or the last ones; go on from ``next``, whatever the length of ``text``."""
        run_id = found(store.run(name), name)["id"]
        if tail is not None:
            return tail_lines(store, run_id, attempt=attempt, lines=tail)
        return store.log(run_id, attempt=attempt, offset=offset, limit=limit) or _no_byte(attempt)

    @router.get("/runs/{name}/series")
    def series(name: str, since_s: float = Query(1800.0, gt=0, le=90 * 86400)) -> Doc:
        return store.series(found(store.run(name), name)["id"], since_s=since_s)


def tail_lines(store: Reads, run_id: str, *, attempt: int | None, lines: int) -> Doc:
    """The last lines of a log, with the byte offset at which they begin and that from which it goes on."""
    return store.log(run_id, attempt=attempt, limit=TAIL_BYTES, tail=lines) or _no_byte(attempt)


def _no_byte(attempt: int | None) -> Doc:
    return {"attempt": attempt, "offset": 0, "next": 0, "size": 0, "text": ""}


def _add_writes(router: APIRouter, store: Reads, control: Control) -> None:
    @router.post("/runs", status_code=202)
    def start(request: TargetRequest) -> Doc:
        return {"operation": control.start(_given(request))}

    @router.post("/adopt", status_code=202)
    def adopt(request: TargetRequest) -> Doc:
        return {"operation": control.adopt(_given(request))}

    @router.post("/doctor", status_code=202)
    def doctor(request: DoctorRequest) -> Doc:
        return {"operation": control.doctor(_given(request))}

    @router.post("/runs/{name}/goal")
    def goal(name: str, request: GoalRequest) -> Doc:
        if not request.yes:
            raise Refused(
                "not_confirmed",
                "A change of goal must be confirmed.",
                'Send "yes": true, or answer the prompt.',
                exit_code=2,
                http_status=400,
            )
        run = found(store.run(name), name)
        wanted = request.model_dump(exclude_none=True, exclude={"yes"})
        if wanted.get("end_attempt") == "current":
            wanted["end_attempt"] = run.get("attempt") or 0
        return control.set_goal(str(run["id"]), wanted)

    @router.post("/hosts/trust")
    def trust(request: TrustRequest) -> Doc:
        return control.trust(request.target, request.fingerprint)

    @router.post("/daemon/stop", status_code=202)
    def shutdown(response: Response) -> Doc:
        control.shutdown()
        response.headers["connection"] = "close"
        return {"stopping": True}


def _given(request: BaseModel) -> dict[str, Any]:
    """What the client sent, without the defaults that it did not."""
    return request.model_dump(exclude_unset=True)
