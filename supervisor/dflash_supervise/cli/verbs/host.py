"""``host``: the hosts and their keys."""

from __future__ import annotations

import click

from dflash_supervise.cli import clean, exits, options, say, words
from dflash_supervise.cli.errors import CliError


@click.group("host", cls=options.Verbs)
def command() -> None:
    """The hosts that the daemon knows, and the trust in their keys."""


@command.command("ls")
@options.json_option
def list_hosts(as_json: bool) -> int:
    """The hosts: reachable or not, and since when."""
    from dflash_supervise.cli import session, table

    with session.connect() as api:
        hosts = api.get("/hosts").get("hosts", [])
    if as_json:
        say.document({"schema": 1, "hosts": hosts})
        return exits.DONE
    body = [
        [
            str(host.get("host")),
            str(host.get("status")),
            words.duration(host.get("age_s")),
            str((host.get("error") or {}).get("message") or ""),
        ]
        for host in clean.document(hosts)
    ]
    if not body:
        say.talk("no hosts; one is known from the first `start`, `adopt` or `doctor TARGET` on")
    else:
        say.data("\n".join(table.rows(("HOST", "STATUS", "FOR", "ERROR"), body, style=say.stdout_style())))
    return exits.DONE


@command.command("trust")
@options.target_argument
@click.option("--fingerprint", help="The key's SHA256:... as the host's owner told you; without it you are asked.")
@options.yes_option
@options.json_option
def trust_host(target: str, fingerprint: str | None, yes: bool, as_json: bool) -> int:
    """Trust a host's key from now on. Compare the fingerprint with what the host's owner tells you.

    On the host: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub
    """
    from dflash_supervise.cli import session
    from dflash_supervise.cli.trust import trust

    if fingerprint is not None and not fingerprint.startswith("SHA256:"):
        raise CliError(
            f"--fingerprint {fingerprint!r} is none of OpenSSH's",
            fix="give the whole word that begins with SHA256:, as ssh-keygen -lf prints it",
            exit_code=exits.USAGE,
            code="usage",
        )
    with session.connect_or_start(session.settings()) as api:
        answer = trust(api, target, fingerprint, yes=yes)
    if as_json:
        say.document({"schema": 1, "target": target, **answer})
    else:
        say.talk(str(clean.document(answer).get("message") or f"the key of {target} is trusted from now on"))
    return exits.DONE
