# ruff: noqa: S104 - listeners on all addresses are what is looked for
"""Audit of listening sockets, on processes of this machine; backends and namespaces are in a box."""

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from appliance.helpers.auditor import audit_listeners
from appliance.model.errors import ApplianceError
from appliance.system.kernel.processes import backend_unit
from appliance.wire.helpers import Listener

ME = os.getpid()
GONE = 4_000_000
LISTEN = """
import socket, sys
one = socket.socket()
one.bind((sys.argv[1], 0))
one.listen()
print(one.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def listening(address: str) -> Iterator[tuple[int, int]]:
    """A process that listens there; its id and port."""
    argv = [sys.executable, "-I", "-c", LISTEN, address]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.pid, int(process.stdout.readline())
        process.stdin.close()


def found_of(*pids: int, within_s: float = 2.0) -> tuple[tuple[Listener, ...], bool]:
    report = audit_listeners(pids, within_s=within_s, init=ME)
    return tuple(one for one in report.listeners if one.pid in pids), report.truncated


@pytest.mark.parametrize(
    ("address", "is_reachable"), [("0.0.0.0", True), ("127.0.0.1", False), ("127.8.8.8", False)]
)
def test_a_process_that_is_asked_for_is_looked_at(address: str, is_reachable: bool) -> None:  # noqa: FBT001
    """Address and port of the socket are told, its program, and whether others reach it."""
    with listening(address) as (pid, port):
        (one,), truncated = found_of(pid)
        assert (one.address, one.port, one.pid) == (address, port, pid)
        assert (one.is_reachable, truncated) == (is_reachable, False)
        assert one.process == Path(f"/proc/{pid}/comm").read_text().strip()


def test_a_process_that_is_not_asked_for_is_not_told() -> None:
    """Of other programs than backends nothing is told."""
    with listening("0.0.0.0"):
        assert found_of() == ((), False)


def test_a_socket_of_two_processes_is_told_once() -> None:
    """A worker that inherited its parent's socket is no second listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        argv = [sys.executable, "-I", "-c", "import sys; sys.stdin.read()"]
        number = listener.fileno()
        with subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=[number]) as worker:
            report = audit_listeners([worker.pid, ME], init=ME)
            worker.communicate()
        port = listener.getsockname()[1]
        assert [one.pid for one in report.listeners if one.port == port] == [worker.pid]


def test_processes_that_ended_are_no_error() -> None:
    """A process that is gone has no sockets; the others of the question are told."""
    with listening("127.0.0.1") as (pid, _):
        assert len(found_of(GONE, 0, pid)[0]) == 1


def test_without_the_right_to_look_nothing_is_told() -> None:
    """An auditor that may not see the box's network namespace says so, instead of telling nothing."""
    with pytest.raises(ApplianceError, match=f"namespace of process {GONE} cannot be read"):
        audit_listeners([ME], init=GONE)


def test_the_time_is_bounded() -> None:
    """A process with thousands of descriptors is left when the time is over, and that is told."""
    with ExitStack() as opened, listening("127.0.0.1") as (pid, _):
        usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (usual, most))
        for _ in range(min(5000, most - 200)):
            opened.callback(os.close, os.dup(0))
        began = time.perf_counter()
        assert audit_listeners([ME, pid], within_s=0.0, init=ME).truncated
        assert time.perf_counter() - began < 1.0
        assert not found_of(pid)[1]


@pytest.mark.parametrize(
    ("group", "unit"),
    [
        ("/appliance.slice/appliance-backend-a.service", "appliance-backend-a.service"),
        ("/appliance.slice/appliance-backend-a.service/worker", "appliance-backend-a.service"),
        ("/system.slice/appliance-gateway.service", ""),
        ("/system.slice/appliance-backend-A!.service", ""),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/appliance-backend-a.service", ""),
        ("/user.slice/session-1.scope/appliance-backend-a.service", ""),
        ("/", ""),
        ("", ""),
    ],
)
def test_a_backend_is_known_by_its_outermost_unit(group: str, unit: str) -> None:
    """A unit of a person's own service manager is no backend, whatever its name."""
    assert backend_unit(group) == unit
