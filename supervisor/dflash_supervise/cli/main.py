"""The program: a lazy list of verbs, and the one place where an error becomes an exit status."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from dflash_supervise.cli import clean, exits, options, say
from dflash_supervise.cli.errors import CliError, Detached, from_usage

# Section, verb, one line. A verb's module is imported only when the verb is used.
VERBS: tuple[tuple[str, str, str], ...] = (
    ("Train", "start", "Start a run on a host and follow it to its first step."),
    ("Train", "adopt", "Watch what somebody started by hand; only your own stop ends it."),
    ("Train", "demo", "The main job on this machine: train, break, diagnose, cure."),
    ("Look", "ps", "The runs: verdict, step, speed, GPUs, age of the news."),
    ("Look", "status", "One run in a few lines; the exit status says how it is."),
    ("Look", "why", "The verdict, what it rests on, and what happens next."),
    ("Look", "logs", "The log of a run's attempt."),
    ("Look", "events", "The timeline: verdicts, incidents, actions, outcomes."),
    ("Look", "diagnose", "What any log file says about its end; no daemon, no host."),
    ("Look", "attach", "The run's tmux session, read-only."),
    ("Look", "open", "The dashboard, by a one-time login link."),
    ("Change", "stop", "End a run; the bundled trainer saves a checkpoint first."),
    ("Change", "restart", "End the current attempt and start the next one."),
    ("Change", "hold", "Go on watching a run, act on nothing."),
    ("Change", "release", "End a hold."),
    ("Change", "wait", "Wait for a step, an incident or the end of a run."),
    ("Set up", "doctor", "Check this machine or a target; each problem with its fix."),
    ("Set up", "host", "The hosts: list them, trust a host key."),
    ("Set up", "daemon", "The daemon of this machine: run, status, stop."),
    ("Set up", "config", "The configuration: show, check, path."),
    ("Set up", "completion", "Completion for bash, zsh or fish."),
)
COMPLETE_OF = {"dflash-supervise": "_DFLASH_SUPERVISE_COMPLETE", "dsup": "_DSUP_COMPLETE"}
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class LazyVerbs(options.Verbs):
    """A group whose commands are modules, imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for _section, name, _summary in VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"dflash_supervise.cli.verbs.{cmd_name}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for wanted in dict.fromkeys(section for section, _name, _summary in VERBS):
            with formatter.section(wanted):
                formatter.write_dl([(name, text) for section, name, text in VERBS if section == wanted])
        with formatter.section("Exit status"):
            formatter.write_dl([(str(code), meaning) for code, meaning in exits.MEANINGS])


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from dflash_supervise import __version__

    say.data(f"dflash-supervise {__version__}")
    ctx.exit()


@click.command(cls=LazyVerbs, context_settings=_CONTEXT)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Version.")
def cli() -> None:
    """Starts training runs on GPU hosts, watches them, and cures what can be cured.

    A TARGET is [user@]host[:port]:/absolute/workspace, or local:/absolute/workspace for this machine. Data goes to
    stdout, talk to stderr; --json gives every answer as JSON.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and exit with one of ``exits``."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.exit(_complete() if COMPLETE_OF[_program()] in os.environ else run(arguments))
    except BrokenPipeError:
        # The reader has seen what it wanted; Python must not complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(exits.DONE)


def run(arguments: list[str]) -> int:
    """The same without leaving the process: the exit status."""
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    try:
        # Not cli.main(): that turns a closed pipe into a failure before we see it.
        with cli.make_context(_program(), list(arguments)) as context:
            answer = cli.invoke(context)
        return answer if isinstance(answer, int) else exits.DONE
    except click.exceptions.Exit as left:
        return left.exit_code
    except CliError as error:
        return _refuse(error, as_json)
    except Detached as left:
        say.talk()
        say.talk(left.message)
        return exits.INTERRUPTED
    except click.ClickException as error:
        return _refuse(from_usage(error, _command(arguments)), as_json)
    except (click.Abort, KeyboardInterrupt):
        say.talk("\ninterrupted")
        return exits.INTERRUPTED


def _complete() -> int:
    """Answer a shell that asks for completion."""
    from click.shell_completion import shell_complete

    variable = COMPLETE_OF[_program()]
    return shell_complete(cli, {}, _program(), variable, os.environ[variable])


def _program() -> str:
    """The name we were called by: both have completion of their own."""
    name = os.path.basename(sys.argv[0])
    return name if name == "dsup" else "dflash-supervise"


def _command(arguments: list[str]) -> str:
    """The command that was meant, for an error that does not say where it happened."""
    named = arguments[:1] if arguments and arguments[0] in {name for _section, name, _summary in VERBS} else []
    return " ".join([_program(), *named])


def _refuse(error: CliError, as_json: bool) -> int:
    if as_json:
        say.document(error.document())
    else:
        # What the daemon refuses with may quote a run's log.
        say.error(clean.document(error.message), clean.document(error.fix))
    return error.exit_code
