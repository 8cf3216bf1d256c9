"""The demo itself: a place, a daemon, a run with two faults in it, and a look at it twice a second to the end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from dflash_supervise.cli import clean, exits, marks, say, session, words
from dflash_supervise.cli.errors import CliError
from dflash_supervise.config import ConfigError
from dflash_supervise.demo import place as places
from dflash_supervise.demo import story as stories
from dflash_supervise.demo import telling
from dflash_supervise.demo.watched import Watched, new_lines, new_records

if TYPE_CHECKING:
    from dflash_supervise.cli.api import Api
    from dflash_supervise.config import Settings

EXPECTED = (
    stories.Expected("exception", 1, 50, "RuntimeError in a worker", "crash", ("rank_exception",)),
    stories.Expected("hang-lock", 2, 110, "lock held for ever", "hang", ("lock_deadlock",)),
)
_POLL_S = 0.5
_STOP_S = 30.0
_LEAVE_S = 20.0  # what processes that have nothing left to do may take to end


@dataclass(frozen=True)
class Options:
    keep: bool = False
    port: int | None = None
    limit_s: float = 290.0
    as_json: bool = False
    examples: Path | None = None  # the folder of demo.toml and demo-train.toml


@dataclass(frozen=True)
class Teller:
    """Where the story goes: stdout, or stderr when stdout is for JSON; each event with the time since the start."""

    as_json: bool
    began: float

    @property
    def style(self) -> say.Style:
        return say.stderr_style() if self.as_json else say.stdout_style()

    def lines(self, texts: list[str]) -> None:
        for text in texts:
            (say.talk if self.as_json else say.data)(text)

    def event(self, *texts: str) -> None:
        minutes, seconds = divmod(int(monotonic() - self.began), 60)
        first, *rest = texts
        self.lines([f"{minutes:02d}:{seconds:02d}  {first}", *(" " * telling.MARGIN + text for text in rest)])


def play(options: Options) -> int:
    """Run the demo; 0, or 1 with a list of what was missing.

    Raises:
        CliError: it cannot run here (exit 5).
    """
    examples = options.examples or _examples()
    check_machine()
    began = monotonic()
    port = _port(options)
    place = places.make()
    environ = places.environment(place, examples / "demo.toml", port)
    wrong: list[str] = []
    # A plain kill must leave as little behind as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _environment(environ, place.root):
            try:
                wrong += _perform(options, examples, place, began)
            finally:
                if not options.keep:
                    wrong += _leave(place, environ)
    finally:
        _tell_place(place, options.keep, bool(wrong))
    for sentence in wrong:
        say.error(sentence)
    return exits.TOOL_FAILED if wrong else exits.DONE


def _port(options: Options) -> int:
    """As it was asked for by option or environment, else the usual one if it is free."""
    try:
        wanted = options.port if options.port is not None else places.wanted_port(os.environ)
    except ConfigError as error:
        raise CliError(str(error), exit_code=exits.USAGE, code="config_error") from error
    return places.free_port() if wanted is None else wanted


def check_machine() -> None:
    """Refuse where the demo cannot work.

    Raises:
        CliError: not Linux, or no torch in this Python (exit 5).
    """
    if not sys.platform.startswith("linux"):
        raise CliError("the demo needs Linux", fix="use it on the GPU machine", exit_code=exits.CHECK_FAILED)
    for module in ("torch", "safetensors", "dflash_trainer"):
        if find_spec(module) is None:
            raise CliError(
                f"this Python has no {module}",
                fix="pip install 'dflash-supervise[trainer]', or in a checkout: make setup",
                exit_code=exits.CHECK_FAILED,
                code="no_trainer",
            )


def _perform(options: Options, examples: Path, place: places.Place, began: float) -> list[str]:
    """Start, watch, tell; what was missing."""
    tell = Teller(options.as_json, began)
    settings = session.settings(str(examples / "demo.toml"))
    tell.lines(telling.opening(*_limits(settings), str(examples / "demo.toml"), tell.style))
    with session.connect_or_start(settings) as api:
        try:
            tell.lines(telling.dashboard(api.url + api.post("/login")["path"], str(place.state), tell.style))
            run_id = _start(api, settings, examples, place, tell)
            watched = Watched()
            run = _watch(api, run_id, watched, options.limit_s, tell)
        finally:
            if not options.keep:
                _shut_down(api)
    story = stories.tell(watched.lines, watched.records, run, EXPECTED)
    wrong = stories.missing(story)
    if not run.get("final"):
        wrong.insert(0, f"it was not over after {words.duration(options.limit_s)}")
    tell.lines(["", *telling.closing(story, monotonic() - began, tell.style)])
    if options.as_json:
        say.document({"schema": 1, "ok": not wrong, "missing": wrong, "story": asdict(story)})
    return wrong


def _limits(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """The policy of the demo and the usual one, as fields."""
    from dflash_supervise.core.policy import Policy

    usual = asdict(Policy())
    return {**usual, **settings.policy}, usual


def _start(api: Api, settings: Settings, examples: Path, place: places.Place, tell: Teller) -> str:
    """Hand the run to the daemon and show its lines until it is launched."""
    file = examples / "demo-train.toml"
    request: dict[str, Any] = {
        "target": f"local:{place.workspace}",
        "name": "demo",
        "gpus": "none",
        "python": sys.executable,
        "policy": dict(settings.policy),
        "train": {"name": file.name, "text": file.read_text(encoding="utf-8")},
        "env": {
            "DFLASH_FAULT": ",".join(f"{fault.kind}@{fault.step}:{fault.attempt}" for fault in EXPECTED),
            "OMP_NUM_THREADS": "1",
        },
    }
    if shutil.which("tmux") is None:
        request["no_tmux"] = True
    operation, told = str(api.post("/runs", request)["operation"]), 0
    while True:
        state = clean.document(api.get(f"/operations/{operation}"))
        for text in state["lines"][told:]:
            tell.event(text)
        told = len(state["lines"])
        if state["state"] == "failed":
            error = state["error"]
            raise CliError(error["message"], fix=error.get("fix", ""), exit_code=int(error["exit_code"]))
        if state["state"] == "done":
            return str(state["run_id"])
        sleep(_POLL_S)


def _watch(api: Api, run_id: str, watched: Watched, limit_s: float, tell: Teller) -> dict[str, Any]:
    """Look until the run is final or the time is over; the last Run."""
    while True:
        run: dict[str, Any] = api.get(f"/runs/{run_id}")
        for line in new_lines(api, run_id, int(run.get("attempt") or 0), watched):
            watched.lines.append(line)
            text = telling.log_line(line, tell.style)
            if text is not None and (line.part != "fault" or watched.first(line.attempt, line.fields.get("injecting"))):
                tell.event(text)
        fresh = new_records(api, run_id, watched)
        watched.records += fresh
        story = stories.tell(watched.lines, watched.records, run, EXPECTED)
        _tell_verdicts(fresh, story, watched, tell)
        for cure in story.cures:
            if cure.next_step_after_s is not None and watched.first("cured", cure.expected.kind):
                tell.event(telling.cured(cure, tell.style))
        if run.get("final") or monotonic() - tell.began > limit_s:
            return run
        sleep(_POLL_S)


def _tell_verdicts(fresh: list[dict[str, Any]], story: stories.Story, watched: Watched, tell: Teller) -> None:
    """Each sick verdict with its sentence, a healthy one only when the word changes."""
    for record in fresh:
        changed = record.get("verdict") != watched.verdict
        watched.verdict = record.get("verdict")
        if not changed and record.get("verdict") in marks.HEALTHY:
            continue
        cure = next((c for c in story.cures if c.at == record.get("at")), None)
        tell.event(*telling.verdict(record, cure, tell.style))


def _shut_down(api: Api) -> None:
    """End what still runs, then the daemon: a demo that was interrupted leaves nothing either."""
    try:
        for run in api.get("/runs")["runs"]:
            if not run.get("final"):
                api.post(f"/runs/{run['id']}/goal", {"want": "stop", "yes": True})
                deadline = monotonic() + _STOP_S
                while not api.get(f"/runs/{run['id']}").get("final") and monotonic() < deadline:
                    sleep(_POLL_S)
        api.post("/daemon/stop")
    except CliError as error:
        say.talk(f"not everything could be stopped in order ({error.message}); what is left is ended now")


def _leave(place: places.Place, environ: dict[str, str]) -> list[str]:
    """See that every process ends; those that did not are ended and named."""
    left = places.end(place, patience_s=_LEAVE_S, environ=environ)
    return [f"a process was left behind and was killed: {one.comm} (pid {one.pid})" for one in left]


def _tell_place(place: places.Place, keep: bool, failed: bool) -> None:
    if keep:
        say.talk("kept; the daemon goes on. Use it, and end it, with:")
        say.talk(f"  export DFLASH_SUPERVISE_STATE_DIR={place.state} TMUX_TMPDIR={place.runtime}")
        say.talk(f"  {words.command('why', 'demo')};  {words.command('open')};  {words.command('daemon', 'stop')}")
        say.talk(f"  tmux -L dflash-{os.getuid()} kill-server;  rm -r {place.root}")
    elif failed:
        say.talk(f"logs, records and state are kept in {place.root}")
    else:
        shutil.rmtree(place.root, ignore_errors=True)


@contextmanager
def _environment(environ: dict[str, str], folder: Path) -> Iterator[None]:
    """This process too lives in the demo's place for a while: what it starts inherits it."""
    before, cwd = dict(os.environ), os.getcwd()
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(before)


def _examples() -> Path:
    from dflash_supervise.web.assets import templates_dir

    return templates_dir() / "examples"
