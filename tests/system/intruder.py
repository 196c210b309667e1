# ruff: noqa: BLE001, PTH115, PTH123, PTH207, PTH208, T201 - a script for a box, without anything of ours
"""Attempts of an intruder who has taken over one of our processes: each by name, as JSON.

usage: intruder.py auditor|checker|gateway|health|engine SUPERVISOR_PID ENGINE_PID

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
BUS = "/run/dbus/system_bus_socket"

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


def reached(port: int) -> Way:
    """Connect to a port of this machine."""
    return lambda: socket.create_connection(("127.0.0.1", port), timeout=5).close()


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


def listened() -> None:
    """Listen on all addresses of the network."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()


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


def of_an_engine(supervisor: int, engine: int) -> Mapping[str, Way]:
    """Try what an engine, of profile a, could do against another, of profile b, and against us."""
    proc = f"/proc/{engine}"
    return {
        "write its memory": lambda: rewritten(f"{proc}/mem"),
        "trace it": lambda: traced(engine),
        "signal it": lambda: os.kill(engine, 0),
        "read its environment": read(f"{proc}/environ"),
        "write its state": appended("/var/lib/appliance-backend/b/kept"),
        "read its state": read("/var/lib/appliance-backend/b/kept"),
        "write its cache": appended("/var/cache/appliance-backend/b/kept"),
        "write its state through its root": appended(
            f"{proc}/root/var/lib/appliance-backend/b/kept"
        ),
        "connect to its socket": connected("/run/appliance-backend/b/e.sock"),
        "take its lease": locked("/run/appliance-leases/gpu-1"),
        "take its lease through its root": locked(f"{proc}/root/run/appliance-claimed/gpu-1"),
        "take the lease of the CPU": locked("/run/appliance-leases/cpu"),
        # What never was allowed.
        "take its lease as the claimant does": locked("/run/appliance-claimed/gpu-1"),
        "add a lease": appended("/run/appliance-leases/gpu-9"),
        "write to a lease": appended("/run/appliance-claimed/gpu-0"),
        "ask the supervisor": control("status"),
        "watch the supervisor": connected("/run/appliance/status.sock"),
        "ask as the gateway": request("switch", name="a"),
        "reach the launcher": connected(LAUNCHER),
        "write the supervisor's memory": lambda: rewritten(f"/proc/{supervisor}/mem"),
        "read the keys": read(f"{STATE}/keys.json"),
        "write the commitment": appended(f"{STATE}/active"),
        "read the history": read(f"{STATE}/state.sqlite"),
        "start units": connected("/run/appliance/jobs.sock"),
        "clear units": commanded("systemctl", "reset-failed", "appliance-hold.service"),
        # What is.
        "take its own lease": locked("/run/appliance-claimed/gpu-0"),
        "write its own state": appended("/var/lib/appliance-backend/a/kept"),
        "write its own cache": appended("/var/cache/appliance-backend/a/kept"),
    }


def of_the_gateway(supervisor: int, engine: int) -> Mapping[str, Way]:
    """Try the ways from the gateway to an operator's rights, or the supervisor's."""
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
        "start units": connected("/run/appliance/jobs.sock"),
        "clear units": commanded("systemctl", "reset-failed", "appliance-hold.service"),
        "take a lease": locked("/run/appliance-leases/cpu"),
        "be the gateway for the supervisor": connected("/run/appliance/gateway.sock"),
        "probe as the health agent": connected("/run/appliance/lane.sock"),
        "ask as the page": connected("/run/appliance/prompt.sock"),
        "watch the supervisor": connected("/run/appliance/status.sock"),
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


def of_the_health_agent(supervisor: int, engine: int) -> Mapping[str, Way]:
    """Try the ways from the health agent to starts, stops, prompts of others and the network."""
    return {
        "ask for the status as an operator": control("status"),
        "ask for a switch": control("switch", name="b", dry_run=True),
        "ask for a hold": control("hold", dry_run=True),
        "ask as the gateway": request("switch", name="b"),
        "command the gateway": connected("/run/appliance/gateway.sock"),
        "start units": connected("/run/appliance/jobs.sock"),
        "start a model": commanded("systemctl", "start", "appliance-backend-a.service"),
        "signal through systemd": commanded(
            "systemctl", "kill", "-sCONT", "appliance-jobs.service"
        ),
        "clear units": commanded("systemctl", "reset-failed", "appliance-hold.service"),
        "see the launcher": lambda: os.listdir("/run/appliance-run"),
        "reach the gateway's address": reached(8010),
        "reach an engine past the gateway": reached(9001),
        "signal the supervisor": lambda: os.kill(supervisor, 0),
        "write an engine's memory": lambda: rewritten(f"/proc/{engine}/mem"),
        "read an engine's environment": read(f"/proc/{engine}/environ"),
        "see an engine's descriptors": lambda: os.listdir(f"/proc/{engine}/fd"),
        "take a lease": locked("/run/appliance-leases/cpu"),
        "read the keys": read(f"{STATE}/keys.json"),
        "read the history": read(f"{STATE}/state.sqlite"),
        "write the commitment": appended(f"{STATE}/active"),
        "write the manifest": appended(f"{APPLIED}/manifest.json"),
        "write the settings": appended("/etc/appliance/appliance.toml"),
        # What is allowed.
        "read the status": lambda: asked("/run/appliance/status.sock", "status"),
        "probe": connected("/run/appliance/lane.sock"),
        "read the manifest": read(f"{APPLIED}/manifest.json"),
        "write its measurements": appended("/var/lib/appliance-health/measurements.sqlite"),
    }


def of_the_auditor(supervisor: int, engine: int) -> Mapping[str, Way]:
    """Try the ways from sight of every process to acts, and to a place where what was seen is told."""
    return {
        "write an engine's memory": lambda: rewritten(f"/proc/{engine}/mem"),
        "trace an engine": lambda: traced(engine),
        "signal an engine": lambda: os.kill(engine, 0),
        "signal the supervisor": lambda: os.kill(supervisor, 0),
        "become root": lambda: os.setuid(0),
        "reach an engine": reached(9001),
        "reach the gateway's address": reached(8010),
        "listen": listened,
        "ask for the status as an operator": control("status"),
        "read the status": connected("/run/appliance/status.sock"),
        "start units": connected("/run/appliance/jobs.sock"),
        "talk to the bus": connected(BUS),
        "talk to the bus through another root": connected(f"/proc/1/root{BUS}"),
        "write the keys": appended(f"/proc/1/root{STATE}/keys.json"),
        "write the commitment": appended(f"/proc/1/root{STATE}/active"),
        "write the manifest": appended(f"{APPLIED}/manifest.json"),
        "write the settings": appended("/proc/1/root/etc/appliance/appliance.toml"),
        "take a lease": locked("/run/appliance-leases/cpu"),
        # What is allowed: the right to see descriptors is the right to read processes and files.
        "see an engine's descriptors": lambda: os.listdir(f"/proc/{engine}/fd"),
        "see the box's network": lambda: os.readlink("/proc/1/ns/net"),
        "read an engine's environment": read(f"/proc/{engine}/environ"),
        "read the keys through another root": read(f"/proc/1/root{STATE}/keys.json"),
    }


def of_the_checker(supervisor: int, engine: int) -> Mapping[str, Way]:
    """Try the ways from the network to the box: its files, its processes, its sockets."""
    return {
        "ask for the status as an operator": control("status"),
        "ask as the gateway": request("switch", name="b"),
        "read the status": connected("/run/appliance/status.sock"),
        "command the gateway": connected("/run/appliance/gateway.sock"),
        "probe": connected("/run/appliance/lane.sock"),
        "ask the auditor": connected("/run/appliance/audit.sock"),
        "start units": connected("/run/appliance/jobs.sock"),
        "talk to the bus": connected(BUS),
        "signal the supervisor": lambda: os.kill(supervisor, 0),
        "write an engine's memory": lambda: rewritten(f"/proc/{engine}/mem"),
        "read an engine's environment": read(f"/proc/{engine}/environ"),
        "see an engine's descriptors": lambda: os.listdir(f"/proc/{engine}/fd"),
        "take a lease": locked("/run/appliance-leases/cpu"),
        "read the keys": read(f"{STATE}/keys.json"),
        "read the settings": read("/etc/appliance/appliance.toml"),
        "read the measurements": read("/var/lib/appliance-health/measurements.sqlite"),
        "write the manifest": appended(f"{APPLIED}/manifest.json"),
        # What is allowed, to every user of the box.
        "reach the gateway's address": reached(8010),
        "reach an engine past the gateway": reached(9001),
        "listen": listened,
    }


def of_the_web_process(supervisor: int, engine: int) -> Mapping[str, Way]:
    """Try the ways from what anybody may ask to what an operator may, without a token."""
    return {
        "ask for the status as an operator": control("status"),
        "ask for a switch": control("switch", name="b", dry_run=True),
        "ask as the gateway": request("switch", name="b"),
        "switch without a token": lambda: asked("/run/appliance/token.sock", "switch", name="b"),
        "command the gateway": connected("/run/appliance/gateway.sock"),
        "probe as the health agent": connected("/run/appliance/lane.sock"),
        "ask the health agent as an operator": connected("/run/appliance/health.sock"),
        "silence an alert": lambda: asked(
            "/run/appliance/view.sock", "alerts", action="silence", name="a", for_s=60.0, reason="x"
        ),
        "have a message sent": connected("/run/appliance/notify.sock"),
        "ask the auditor": connected("/run/appliance/audit.sock"),
        "have an address checked": connected("/run/appliance/check.sock"),
        "start units": connected("/run/appliance/jobs.sock"),
        "start a model": commanded("systemctl", "start", "appliance-backend-a.service"),
        "see the launcher": lambda: os.listdir("/run/appliance-run"),
        "reach the gateway's address": reached(8010),
        "reach an engine": reached(9001),
        "signal the supervisor": lambda: os.kill(supervisor, 0),
        "write an engine's memory": lambda: rewritten(f"/proc/{engine}/mem"),
        "read an engine's environment": read(f"/proc/{engine}/environ"),
        "take a lease": locked("/run/appliance-leases/cpu"),
        "read the keys": read(f"{STATE}/keys.json"),
        "read the tokens": read(f"{STATE}/tokens.json"),
        "read the targets": read("/etc/appliance/targets.toml"),
        "read the history": read(f"{STATE}/state.sqlite"),
        "write the commitment": appended(f"{STATE}/active"),
        "write the manifest": appended(f"{APPLIED}/manifest.json"),
        "write the settings": appended("/etc/appliance/appliance.toml"),
        # What is allowed.
        "read the status": lambda: asked("/run/appliance/status.sock", "status"),
        "read speeds and alerts": lambda: asked("/run/appliance/view.sock", "speeds"),
        "reach the socket for tokens": connected("/run/appliance/token.sock"),
    }


def outcome(way: Way) -> str:
    try:
        way()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"


if __name__ == "__main__":
    ways = {
        "auditor": of_the_auditor,
        "checker": of_the_checker,
        "engine": of_an_engine,
        "gateway": of_the_gateway,
        "health": of_the_health_agent,
        "web": of_the_web_process,
    }
    found = {
        n: outcome(way) for n, way in ways[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3])).items()
    }
    print(json.dumps(found))
