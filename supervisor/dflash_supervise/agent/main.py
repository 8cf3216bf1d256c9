"""``python3 -IS <agentdir> VERB ...``: each verb imports only what it needs."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List, Optional

USAGE = """usage: VERB is one of
  follow               serve a peer on stdin and stdout
  run RUN_DIR          watch and steer one run, in the background
  keep RUN_DIR N       be the parent of attempt N
  show RUN_DIR         print the newest attempt's log
  look [WORKSPACE]     one look at this host, as JSON
  doctor WORKSPACE     what could stand in the way, as JSON
"""


def main(argv: Optional[List[str]] = None) -> int:
    """The exit code of the verb; 2 for a command line that is none."""
    words = sys.argv[1:] if argv is None else argv
    verb, rest = (words[0], words[1:]) if words else ("", [])
    options = environment_options()
    if verb == "keep" and len(rest) >= 2:
        from dflash_supervise.agent import keep

        return keep.main(rest)
    if verb == "nvml":
        from dflash_supervise.agent import nvml_child

        return nvml_child.main(json.loads(rest[0]) if rest else options)
    if verb == "run" and len(rest) == 1:
        from dflash_supervise.agent import run

        return run.main(os.path.abspath(rest[0]))
    if verb == "follow" and not rest:
        from dflash_supervise.agent import follow

        return follow.main(options)
    if verb == "show" and len(rest) == 1:
        from dflash_supervise.agent import show

        return show.main(os.path.abspath(rest[0]), options)
    if verb == "look" and len(rest) <= 1:
        return _print_look(rest[0] if rest else None, options)
    if verb == "doctor" and len(rest) == 1:
        return _print_doctor(rest[0], options)
    sys.stderr.write(USAGE)
    return 2


def environment_options() -> Dict[str, Any]:
    """Test options from ``DFLASH_AGENT_OPTIONS``; none when it is absent or no JSON object."""
    try:
        options = json.loads(os.environ.get("DFLASH_AGENT_OPTIONS") or "{}")
    except ValueError:
        return {}
    return options if isinstance(options, dict) else {}


def _print_look(workspace: Optional[str], options: Dict[str, Any]) -> int:
    from dflash_supervise.agent.look import look
    from dflash_supervise.agent.runtime import Runtime

    runtime = Runtime.open(proc_root=options.get("proc_root", "/proc"))
    print(json.dumps(look(runtime, workspace), indent=1))
    return 0


def _print_doctor(workspace: str, options: Dict[str, Any]) -> int:
    from dflash_supervise.agent.doctor import doctor
    from dflash_supervise.agent.runtime import Runtime

    runtime = Runtime.open(proc_root=options.get("proc_root", "/proc"))
    checks = doctor(runtime, os.path.abspath(workspace))
    print(json.dumps(checks, indent=1))
    return 5 if any(check["ok"] is False for check in checks) else 0
