# ruff: noqa: BLE001, PTH123, PTH207, T201 - a script for a box, without anything of ours
"""What somebody tries who has taken over one of our processes: each way by name, as JSON.

usage: intruder.py SUPERVISOR_PID ENGINE_PID

Standard library only: it runs in boxes, in place of a daemon. A way's value is "done", or the
error that was in it.
"""

import contextlib
import ctypes
import fcntl
import glob
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping

STATE = "/var/lib/appliance"
APPLIED = "/var/lib/appliance-applied"
LAUNCHER = "/run/appliance-run/socket"
PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17

Way = Callable[[], object]


class RefusedError(Exception):
    """The other side answered, and said no."""


def asked(path: str, verb: str, **args: object) -> None:
    """Ask the supervisor; the closing event."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        request = {"protocol": {"min": 1, "max": 1}, "verb": verb, "args": args}
        connection.sendall(json.dumps(request).encode() + b"\n")
        event = [json.loads(line) for line in connection.makefile()][-1]
    if event["exit"]:
        raise RefusedError(event["message"])


def control(verb: str, **args: object) -> Way:
    return lambda: asked("/run/appliance/control.sock", verb, **args)


def request(verb: str, **args: object) -> Way:
    return lambda: asked("/run/appliance/request.sock", verb, **args)


def connected(path: str) -> Way:
    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)

    return connect


def rewritten(path: str) -> None:
    """Write to a process's memory what is there."""
    with open(path.replace("/mem", "/maps")) as maps:
        start = next(int(line.split("-")[0], 16) for line in maps if "[heap]" in line)
    with open(path, "r+b", buffering=0) as memory:
        memory.seek(start)
        word = memory.read(8)
        memory.seek(start)
        memory.write(word)


def traced(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, pid, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, 0x40000000)  # __WALL: a process can be let go only while it stands still
    libc.ptrace(PTRACE_DETACH, pid, 0, 0)
    os.kill(pid, signal.SIGCONT)


def read(pattern: str) -> Way:
    """Read something of every file of this pattern; there must be one."""

    def reading() -> None:
        for path in glob.glob(pattern) or [pattern]:
            with open(path, "rb") as file:
                file.read(1)

    return reading


def appended(path: str) -> Way:
    return lambda: open(path, "ab").close()


def locked(path: str) -> Way:
    """Take the lock, or meet who has it: either way it was there to take."""

    def locking() -> None:
        with open(path, "rb") as lease, contextlib.suppress(BlockingIOError):
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)

    return locking


def commanded(*words: str) -> Way:
    def command() -> None:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RefusedError(done.stderr.strip())

    return command


def ways(supervisor: int, engine: int) -> Mapping[str, Way]:
    proc = f"/proc/{supervisor}"
    return {
        "ask for a run": control("run", command="true", gpus=[], dry_run=True),
        "ask for a hold": control("hold", dry_run=True),
        "ask for a switch": control("switch", name="b", dry_run=True),
        "ask for a key": control("key", action="add", name="mine", may_switch=True, profiles=None),
        "ask for the status": control("status"),
        "reach the launcher": connected(LAUNCHER),
        "reach the launcher through the supervisor": connected(f"{proc}/root{LAUNCHER}"),
        "write the supervisor's memory": lambda: rewritten(f"{proc}/mem"),
        "trace the supervisor": lambda: traced(supervisor),
        "signal the supervisor": lambda: os.kill(supervisor, 0),
        "read the supervisor's environment": read(f"{proc}/environ"),
        "write the keys": appended(f"{STATE}/keys.json"),
        "write the commitment": appended(f"{STATE}/active"),
        "write the history": appended(f"{STATE}/state.sqlite"),
        "add to the state": appended(f"{STATE}/intruder"),
        "read the history": read(f"{STATE}/state.sqlite"),
        "start units": commanded("systemctl", "reset-failed", "appliance-hold.service"),
        "take a lease": locked("/run/appliance-leases/cpu"),
        "be the gateway for the supervisor": connected("/run/appliance/gateway.sock"),
        # What never was allowed.
        "write the manifest": appended(f"{APPLIED}/manifest.json"),
        "write the settings": appended(f"{APPLIED}/gateway.json"),
        "add a lease": appended("/run/appliance-leases/gpu-9"),
        "read others' credentials": read("/run/credentials/*/secret"),
        "write an engine's memory": lambda: rewritten(f"/proc/{engine}/mem"),
        "signal an engine": lambda: os.kill(engine, 0),
        "switch to what is not on request": request("switch", name="b"),
        "hold through the request socket": request("hold"),
        # What is.
        "read the keys": read(f"{STATE}/keys.json"),
        "switch on request": request("switch", name="a"),
    }


def outcome(way: Way) -> str:
    try:
        way()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"


if __name__ == "__main__":
    found = {n: outcome(way) for n, way in ways(int(sys.argv[1]), int(sys.argv[2])).items()}
    print(json.dumps(found))
