"""Records and log lines that several invented runs share."""

from __future__ import annotations

from dflash_supervise.web.control import Doc
from dflash_supervise.web.words import rfc3339

FX_LINE = (
    "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function. "
    "This is not supported at the moment."
)


def start(number: int, at: float, because: str, remedies: list[str] | None = None) -> Doc:
    return {
        "kind": "attempt_start",
        "at": rfc3339(at),
        "attempt": number,
        "because": because,
        "remedies": remedies or [],
        "pid": 4000,
    }


def verdict(run: Doc, findings: list[Doc], now: float, next_: Doc | None = None) -> Doc:
    return {
        "kind": "verdict",
        "at": rfc3339(now),
        "attempt": run["attempt"],
        "verdict": run["verdict"],
        "cause": run["cause"],
        "sentence": run["sentence"],
        "suspected": run["suspected"],
        "phase": run["phase"],
        "since_s": 8.0,
        "notes": run["notes"],
        "findings": findings,
        "next": next_ or {"what": "nothing", "in_s": None, "why": ""},
        "final": run["final"],
    }


def log_text(run: Doc, now: float, lines: int = 60) -> str:
    header = (
        f"[dflash] run={run['id']} attempt={run['attempt']} started={rfc3339(now - 4000)} "
        "argv=python -m dflash_trainer --train train.toml\n"
    )
    out = [header] if lines == 60 else []
    for n in range(lines):
        step = (run["step"] or 0) - lines + n + 1
        at = rfc3339(now - 2 * (lines - n))[11:19]
        loss, rate = (run["loss"] or 2.3) + 0.01 * (n % 7), (run["tokens_per_s"] or 48000) + 37 * (n % 11)
        out.append(f"{at} INFO step={step} loss={loss:.4f} tok/s={rate:.0f} tau=3.{40 + n % 9} lr=5.9e-04\n")
        if n % 20 == 19:
            out.append(f"{at} \x1b[32mINFO\x1b[0m checkpoint step={step} written in 2.1 s\n")
    return "".join(out)


def threads_die() -> str:
    site = "/workspace/.venv/lib/python3.11/site-packages"
    return (
        "\x1b[31mException in thread train-2:\x1b[0m\n"
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner\n    self.run()\n'
        f'  File "{site}/dflash_trainer/workers.py", line 118, in run\n    loss = self.step(batch)\n'
        f'  File "{site}/torch/_dynamo/eval_frame.py", line 632, in _fn\n    raise RuntimeError(\n'
        f"{FX_LINE}\n"
    )
