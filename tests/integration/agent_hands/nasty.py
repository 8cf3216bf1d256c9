"""A trainer that is hard to end: each rank gets away from another way of ending it.

``nasty.py main FOLDER ROLE...`` starts one rank a role; every rank writes FOLDER/<role>.<pid> and stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

ME = [sys.executable, "-S", os.path.abspath(__file__)]
OWN_SESSION = ("setsid", "noenv", "orphan_noenv")


def spawn(role: str, folder: str) -> None:
    bare = {"PATH": os.environ["PATH"], "LAB_TEST": os.environ.get("LAB_TEST", "")}
    env = bare if role.endswith("noenv") else None
    child = subprocess.Popen([*ME, role, folder], env=env, start_new_session=role in OWN_SESSION)
    if role in ("daemon", "orphan_noenv"):
        child.wait()


def main(folder: str, roles: list[str]) -> None:
    for role in roles:
        spawn(role, folder)
    while len([name for name in os.listdir(folder) if not name.endswith(".tmp")]) < len(roles):
        time.sleep(0.02)
    print("up", flush=True)


def rank(role: str, folder: str) -> None:
    if role in ("daemon", "orphan_noenv"):
        if os.fork():
            os._exit(0)
        os.setsid()
        if os.fork():
            os._exit(0)
    if role == "ignores_term":
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    if role == "respawns":
        signal.signal(signal.SIGTERM, lambda *_: (spawn("respawns", folder), os._exit(0)))
    with open(os.path.join(folder, f"{role}.{os.getpid()}"), "w"):
        pass
    if role == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    if sys.argv[1] == "main":
        main(sys.argv[2], sys.argv[3:])
    else:
        rank(sys.argv[1], sys.argv[2])
    while True:
        time.sleep(1)
