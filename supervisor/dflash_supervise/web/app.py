"""The dashboard as one ASGI application."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from dflash_supervise.web.api import api_router
from dflash_supervise.web.assets import templates_dir
from dflash_supervise.web.control import Control, Reads, Refused
from dflash_supervise.web.events import Stream, events_router
from dflash_supervise.web.guard import Guard, error_page_wanted
from dflash_supervise.web.pages import pages_router
from dflash_supervise.web.render import refusal_page
from dflash_supervise.web.session import Sessions
from dflash_supervise.web.settings import WebSettings

log = logging.getLogger(__name__)


def create_app(store: Reads, control: Control, settings: WebSettings) -> FastAPI:
    """Pages, API and live stream over a store to read and a daemon to ask, behind the guard.

    Raises:
        FileNotFoundError: the templates are not installed.
    """
    sessions = Sessions(settings.token)
    app = FastAPI(
        title="dflash-supervise",
        version=settings.version or "0",
        docs_url=None,  # its page loads scripts from elsewhere; the schema itself is served
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    app.include_router(api_router(store, control, sessions))
    app.include_router(events_router(Stream(store, control, settings), store))
    app.include_router(pages_router(store, control, settings, sessions))
    app.mount("/static", StaticFiles(directory=templates_dir() / "static"), name="static")
    _add_health(app, store)
    _add_errors(app)
    app.add_middleware(Guard, settings=settings, sessions=sessions)
    return app


def _add_health(app: FastAPI, store: Reads) -> None:
    @app.get("/healthz", include_in_schema=False)
    def healthz() -> dict[str, bool]:
        return {"ok": True}

    @app.get("/readyz", include_in_schema=False)
    def readyz() -> Response:
        try:
            store.last_row()
        except Exception:
            log.exception("the store does not answer")
            return JSONResponse({"ok": False, "why": "the store does not answer"}, status_code=503)
        return JSONResponse({"ok": True})


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return _answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        return _answer(
            request,
            Refused("bad_request", f"{where}: {first['msg']}.", "Correct this field.", exit_code=2, http_status=400),
        )

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        text = {404: "There is nothing at this address."}.get(error.status_code, str(error.detail))
        refusal = Refused(code, text, "Go to / for all runs.", exit_code=2, http_status=error.status_code)
        return _answer(request, refusal)


def _answer(request: Request, error: Refused) -> Response:
    if error_page_wanted(request.scope):
        return HTMLResponse(refusal_page(error), status_code=error.http_status)
    return JSONResponse(error.as_doc(), status_code=error.http_status)
