"""One process: web server in the main thread; ingest, links, watch and alerts in theirs."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from dflash_supervise import __version__
from dflash_supervise.alerts.channels import channels_of
from dflash_supervise.alerts.worker import AlertWorker
from dflash_supervise.config import ConfigError, Settings
from dflash_supervise.config.target import HostTarget
from dflash_supervise.daemon import identity, port
from dflash_supervise.daemon.control import DaemonControl
from dflash_supervise.daemon.handover import Handover
from dflash_supervise.daemon.ingest import Ingest
from dflash_supervise.daemon.links import Links
from dflash_supervise.daemon.parts import Parts
from dflash_supervise.daemon.seam import HostLink, MakeLink
from dflash_supervise.daemon.watch import Watch
from dflash_supervise.link import LinkSettings, trust
from dflash_supervise.link import host as link_host
from dflash_supervise.store import Store, StoreError
from dflash_supervise.web import create_app
from dflash_supervise.web.settings import WebSettings

log = logging.getLogger(__name__)

LOG_BYTES = 4 * 1024 * 1024
STOP_S = 3  # streams that are still open then are cut


def run(settings: Settings, *, make_link: MakeLink | None = None) -> int:
    """Run the daemon until SIGTERM, SIGINT or an order to stop; its exit code.

    Args:
        make_link: another way to make links, for tests.
    """
    try:
        identity.private_dir(settings.state_dir)
    except OSError as error:
        return _refuse(f"the state folder cannot be used: {identity.reason(error)}", 2)
    try:
        listener, shown_port = _listen(settings)
    except port.PortTaken as error:
        return _refuse(str(error), 1)
    except (ValueError, ConfigError) as error:
        return _refuse(str(error), 2)
    with listener, contextlib.ExitStack() as held:
        try:
            instance = held.enter_context(identity.hold(settings))
            _log_to(settings)
        except identity.AlreadyRunning as error:
            return _refuse(str(error), 6)
        except OSError as error:
            return _refuse(f"the state folder cannot be used: {identity.reason(error)}", 2)
        return _serve(settings, instance, listener, shown_port, make_link)


def _listen(settings: Settings) -> tuple[socket.socket, int]:
    host = settings.daemon.host
    if not port.is_loopback(host) and not settings.daemon.allowed_hosts:
        raise ConfigError(
            f"{host} is not a loopback address, and nothing says by which names browsers may come",
            where=settings.origins.get("daemon.host", "default"),
            key="daemon.host",
            fix='set [daemon] allowed_hosts = ["name:port"], or use 127.0.0.1',
        )
    running = identity.read_daemon_file(settings)
    if running and running.get("port") == settings.daemon.port:
        raise port.PortTaken(f"a daemon runs already (pid {running['pid']} at {running['url']})")
    listener = port.bind(host, settings.daemon.port)
    return listener, int(listener.getsockname()[1])


def _serve(
    settings: Settings,
    instance: identity.Instance,
    listener: socket.socket,
    shown_port: int,
    make_link: MakeLink | None,
) -> int:
    try:
        store = Store(settings.store_url, logs=settings.logs_dir)
    except (ValueError, OSError, StoreError) as error:
        why = identity.reason(error) if isinstance(error, OSError) else str(error).splitlines()[0]
        return _refuse(f"the database cannot be used: {why}", 2)
    running = _Running.begin(store, settings, instance, make_link or _link_maker(settings))
    server: list[uvicorn.Server] = []

    def stop() -> None:
        for one in server:
            one.should_exit = True

    def trusted(target: HostTarget, fingerprint: str) -> str:
        return trust(target, fingerprint, _link_settings(settings)).type

    control = DaemonControl(running.parts, settings, trust=trusted, stop=stop)
    url = f"http://{_shown_host(settings.daemon.host)}:{shown_port}"
    web = WebSettings(token=instance.token, port=shown_port, hosts=settings.daemon.allowed_hosts, version=__version__)
    config = uvicorn.Config(
        create_app(store, control, web),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_S,
    )
    server.append(uvicorn.Server(config))
    try:
        running.start()
        identity.write_daemon_file(settings, url=url, port=shown_port, version=__version__)
        log.info("serving url=%s state=%s", url, settings.state_dir)
        for number in (signal.SIGTERM, signal.SIGINT):
            # The server raises what ended it once more when it is done; by default that would kill us here.
            signal.signal(number, lambda _number, _frame: stop())
        server[0].run(sockets=[listener])
    finally:
        settings.daemon_file.unlink(missing_ok=True)
        running.close()
        store.close()
        log.info("ended; every run goes on")
    return 0


@dataclass(frozen=True)
class _Running:
    """The threads of a daemon, started and ended in an order in which nothing is lost."""

    parts: Parts
    watch: Watch
    alerts: AlertWorker

    @classmethod
    def begin(cls, store: Store, settings: Settings, instance: identity.Instance, make: MakeLink) -> _Running:
        ingest = Ingest(store)
        links = Links(store, ingest, make)
        handover = Handover(store, instance.owner)
        parts = Parts(store, links, ingest, handover)
        alerts = AlertWorker(
            store,
            channels_of(settings),
            interval_s=settings.alerts.interval_s,
            retry_max_s=settings.alerts.retry_max_s,
        )
        return cls(parts, Watch(parts, settings), alerts)

    def start(self) -> None:
        self.parts.ingest.start()
        self.parts.links.open_all()
        self.watch.start()
        self.alerts.start()

    def close(self) -> None:
        self.watch.close()
        self.parts.links.close()
        self.parts.ingest.close()
        self.alerts.close()


def _link_maker(settings: Settings) -> MakeLink:
    link_settings = _link_settings(settings)

    def make(target: HostTarget, sink: link_host.Sink, cursors: object) -> HostLink:
        return link_host.HostLink(target, sink, link_settings, cursors=cursors)  # type: ignore[arg-type]

    return make


def _link_settings(settings: Settings) -> LinkSettings:
    named = settings.ssh.config_file
    return LinkSettings(
        state_dir=settings.state_dir,
        ssh_config=Path(named).expanduser() if named else None,
        connect_timeout_s=settings.ssh.connect_timeout_s,
    )


def _shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _refuse(text: str, code: int) -> int:
    print(f"dflash-supervise: {text}", file=sys.stderr)
    return code


def _log_to(settings: Settings) -> None:
    """Our log file in the state directory, and standard error where a person watches."""
    handlers: list[logging.Handler] = [
        logging.handlers.RotatingFileHandler(settings.log_file, maxBytes=LOG_BYTES, backupCount=2, encoding="utf-8")
    ]
    os.chmod(settings.log_file, 0o600)
    if sys.stderr.isatty():
        handlers.append(logging.StreamHandler())
    logging.basicConfig(
        level=logging.INFO, handlers=handlers, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    for noisy in ("paramiko", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
