"""The bundled trainer's own opinion of its settings, before a launch has to tell it."""

from __future__ import annotations

import subprocess
from typing import Any, Dict

CHECK_S = 45.0  # a Python from a cold network disk; the trainer reads its settings before it imports torch
CONFIG_CODE = 64  # of the trainer: a wrong configuration


def check_config(context: Dict[str, Any]) -> Dict[str, Any]:
    """{"settings", "message"}: right, wrong or, where nobody can say, unknown; and why it is not right."""
    try:
        done = subprocess.run(
            [*context["argv"], "--check"],
            cwd=context["cwd"],
            env=context["env"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CHECK_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"settings": "unknown", "message": f"the trainer did not answer within {CHECK_S:.0f} s"}
    except OSError as error:
        return {"settings": "unknown", "message": f"the trainer cannot be started: {error.strerror}"}
    if done.returncode == 0:
        return {"settings": "right", "message": ""}
    said = (done.stdout.strip() or done.stderr.strip()).decode("utf-8", "replace").splitlines()
    last = said[-1] if said else f"it ended with code {done.returncode}"
    settings = "wrong" if done.returncode == CONFIG_CODE else "unknown"
    return {"settings": settings, "message": last.partition(" reason=")[2] or last}
