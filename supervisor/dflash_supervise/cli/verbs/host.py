"""``host``: the hosts and their keys."""

from __future__ import annotations

import click

from dflash_supervise.cli import clean, exits, options, say, words


@click.group("host")
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
    if body:
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

    with session.connect_or_start(session.settings()) as api:
        answer = trust(api, target, fingerprint, yes=yes)
    if as_json:
        say.document({"schema": 1, "target": target, **answer})
    else:
        say.talk(str(clean.document(answer).get("message") or f"the key of {target} is trusted from now on"))
    return exits.DONE
