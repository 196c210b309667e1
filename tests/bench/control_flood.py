"""Hostile operator in a box: ``control_flood.py SECONDS``. Standard library only.

It holds a thousand connections to the supervisor's control socket, each with a request of 700 KB
that does not end, while root asks for the status. Prints one JSON object.
"""

import grp
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

CONNECTIONS = 1000
HALF_LINE = b'{"verb": "' + b"x" * 700_000
SOCKET = "/run/appliance/control.sock"
NOBODY = 65534
USUAL = 5
FILES = 4096


def attack() -> None:
    """Hold connections for ever; who is hung up on comes back."""
    # What is measured is the supervisor's queue, not the machine's.
    os.nice(10)
    os.setgroups([grp.getgrnam("appliance-operators").gr_gid])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    held: list[tuple[socket.socket, int]] = []
    while True:
        if len(held) < CONNECTIONS:
            client = socket.socket(socket.AF_UNIX)
            try:
                client.connect(SOCKET)
            except OSError:
                client.close()
                time.sleep(0.01)
            else:
                client.setblocking(False)  # noqa: FBT003 - has no keyword
                held.append((client, 0))
        held = [(one, sent) for one, sent in map(said, held) if sent >= 0]
        time.sleep(0.001)


def said(one: tuple[socket.socket, int]) -> tuple[socket.socket, int]:
    """Say some more; -1: hung up on."""
    client, sent = one
    if sent >= len(HALF_LINE):
        return one
    try:
        return client, sent + client.send(HALF_LINE[sent : sent + 65_536])
    except BlockingIOError:
        return one
    except OSError:
        client.close()
        return client, -1


def status_ms() -> float:
    """Return how long a status takes; raises when none comes."""
    began_s = time.monotonic()
    subprocess.run(["/usr/local/bin/appliance", "status"], check=True, capture_output=True)
    return (time.monotonic() - began_s) * 1000


def peak_mib(pid: str) -> float:
    """Return the most memory that a process has held, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main() -> None:
    """Attack, ask, and say how it was."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    show = ["systemctl", "show", "-P", "MainPID", "appliance-supervisor.service"]
    usual_ms = sorted(status_ms() for _ in range(USUAL))[USUAL // 2]
    pid = subprocess.run(show, check=True, capture_output=True, text=True).stdout.strip()
    attacker = os.fork()
    if not attacker:
        try:
            attack()
        finally:
            os._exit(1)
    times_ms, refused = [], 0
    until_s = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < until_s:
        try:
            times_ms.append(status_ms())
        except subprocess.CalledProcessError:
            refused += 1
        time.sleep(0.2)
    os.kill(attacker, signal.SIGKILL)
    os.waitpid(attacker, 0)
    stall_ms = max(times_ms, default=0.0) - usual_ms
    found = {"stall_ms": stall_ms, "refused": refused, "peak_mib": peak_mib(pid)}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
