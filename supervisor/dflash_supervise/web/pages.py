"""The pages: complete without JavaScript; the fragments inside them are what a live page fetches anew."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from dflash_supervise.web import render
from dflash_supervise.web.api import found
from dflash_supervise.web.control import Control, Doc, Reads, Refused
from dflash_supervise.web.ladder import STALE_NEWS_S
from dflash_supervise.web.runpage import charts_values, goal_values, log_values, now_values
from dflash_supervise.web.session import COOKIE_LIFE_S, Sessions, next_path
from dflash_supervise.web.settings import WebSettings
from dflash_supervise.web.timeline import timeline_values
from dflash_supervise.web.view import RunView, in_order, incident_view, page_tone, run_view

HOLDS = {"": None, "1800": 1800.0, "7200": 7200.0, "28800": 28800.0}


async def form_fields(request: Request) -> dict[str, str]:
    """The fields of a form as a browser sends it; the guard has bounded its size."""
    body = (await request.body()).decode("utf-8", "replace")
    return {key: values[-1] for key, values in parse_qs(body, keep_blank_values=True, max_num_fields=20).items()}


Fields = Annotated[dict[str, str], Depends(form_fields)]


def pages_router(store: Reads, control: Control, settings: WebSettings, sessions: Sessions) -> APIRouter:
    router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)
    _add_fleet(router, store, control, settings)
    _add_run(router, store, settings)
    _add_goal(router, store, control)
    _add_login(router, settings, sessions)
    return router


def _add_fleet(router: APIRouter, store: Reads, control: Control, settings: WebSettings) -> None:
    def values() -> dict[str, Any]:
        now = time.time()
        docs = store.runs()
        names = {str(doc.get("id")): str(doc.get("name")) for doc in docs}
        runs = in_order([run_view(doc, stale_s=STALE_NEWS_S) for doc in docs])
        shown = [incident_view(doc) for doc in store.incidents()]
        needy = [item for item in shown if item.state == "open"]
        return {
            "now": now,
            "runs": runs,
            "names": names,
            "incidents": needy,
            "hosts": control.hosts(),
            "tone": page_tone(runs),
            "title": _fleet_title(runs),
            "version": settings.version,
        }

    @router.get("/")
    def fleet() -> str:
        return render.page("fleet.html", **values())

    @router.get("/fragments/fleet")
    def fleet_fragment() -> str:
        return render.page("fragments/fleet.html", **values())


def _fleet_title(runs: list[RunView]) -> str:
    needy = sum(1 for run in runs if run.open_incidents)
    living = sum(1 for run in runs if not run.final)
    if needy:
        return f"{needy} with open incidents"
    return f"{living} living" if living else "nothing runs"


def _add_run(router: APIRouter, store: Reads, settings: WebSettings) -> None:
    def whole(name: str) -> dict[str, Any]:
        doc = found(store.run(name), name)
        now = time.time()
        return {
            **now_values(store, doc, now),
            **charts_values(store, doc, now),
            **log_values(store, doc),
            "version": settings.version,
        }

    @router.get("/runs/{name}")
    def run(name: str) -> str:
        return render.page("run.html", **whole(name))

    @router.get("/fragments/runs/{name}/now")
    def now_fragment(name: str) -> str:
        return render.page("fragments/now.html", **now_values(store, found(store.run(name), name), time.time()))

    @router.get("/fragments/runs/{name}/charts")
    def charts_fragment(name: str) -> str:
        return render.page("fragments/charts.html", **charts_values(store, found(store.run(name), name), time.time()))

    @router.get("/fragments/runs/{name}/log")
    def log_fragment(name: str) -> str:
        return render.page("fragments/log.html", **log_values(store, found(store.run(name), name)))

    @router.get("/fragments/runs/{name}/goal/{wish}")
    def goal_fragment(name: str, wish: Literal["restart", "stop"]) -> str:
        return render.page("fragments/goal_form.html", wish=wish, **goal_values(found(store.run(name), name)))

    @router.get("/runs/{name}/timeline")
    def timeline(name: str, before: int | None = None) -> str:
        doc = found(store.run(name), name)
        values = timeline_values(store, doc, before, time.time())
        return render.page("timeline.html", **values, version=settings.version)


def _add_goal(router: APIRouter, store: Reads, control: Control) -> None:
    @router.post("/runs/{name}/goal")
    def goal(name: str, fields: Fields) -> RedirectResponse:
        doc = found(store.run(name), name)
        control.set_goal(str(doc["id"]), wanted_goal(fields))
        return RedirectResponse(f"/runs/{doc['id']}", status_code=303)


def wanted_goal(fields: dict[str, str]) -> Doc:
    """The goal that a form asks for. ``restart`` names the attempt that was on the screen, so it ends no newer one.

    Raises:
        Refused: a field has a value that no form of ours sends.
    """
    wish = fields.get("wish", "")
    if wish in ("stop", "run"):
        return {"want": wish}
    if wish == "hold" and fields.get("hold_for_s", "") in HOLDS:
        limit = HOLDS[fields.get("hold_for_s", "")]
        return {"want": "hold"} if limit is None else {"want": "hold", "hold_for_s": limit}
    attempt = fields.get("attempt", "")
    if wish == "restart" and attempt.isascii() and attempt.isdigit() and len(attempt) < 8:
        return {"want": "run", "end_attempt": int(attempt)}
    raise Refused(
        "bad_request",
        "This form does not say what is wanted.",
        "Go back, reload the page and try again.",
        exit_code=2,
        http_status=400,
    )


def _add_login(router: APIRouter, settings: WebSettings, sessions: Sessions) -> None:
    def welcome(request: Request, wanted: str) -> HTMLResponse:
        # A page that leads on, not a redirect: a link followed from another site would carry no strict cookie there.
        answer = HTMLResponse(render.page("welcome.html", tone="ok", next=next_path(wanted)))
        answer.set_cookie(
            settings.cookie,
            sessions.new_cookie(),
            max_age=int(COOKIE_LIFE_S),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    @router.get("/login")
    def login(request: Request, token: str = "", next: str = "") -> HTMLResponse:
        if token and sessions.use_link(token):
            return welcome(request, next)
        return HTMLResponse(
            render.page("login.html", tone="unknown", used=bool(token), wrong=False, next=next_path(next)),
            401 if token else 200,
        )

    @router.post("/login")
    def login_by_token(request: Request, fields: Fields) -> HTMLResponse:
        wanted = fields.get("next", "")
        if sessions.token_ok(fields.get("token", "").strip()):
            return welcome(request, wanted)
        return HTMLResponse(
            render.page("login.html", tone="unknown", used=False, wrong=True, next=next_path(wanted)), 401
        )
