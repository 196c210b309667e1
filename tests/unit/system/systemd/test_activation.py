"""Small daemons that a socket of systemd starts: as processes, with a socket handed over as systemd does."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.system.daemon_clients import CheckClient
from tests.fakes.notify_socket import NotifySocket
from tests.programs import PATIENCE_S, ROOT

UNIT = "appliance-checker.socket"
SERVE = """
import sys
sys.path.insert(0, {root!r})
from appliance.system.systemd.activation import serve_activated
from appliance.helpers.checker import answer
from appliance.wire.helpers import CHECK
sys.exit(serve_activated({unit!r}, CHECK, answer, idle_s=0.3))
"""
SHELL = 'export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES="$1"; shift; exec "$@" 3<&0 0</dev/null'
HEAVY = (
    "pydantic",
    "sqlite3",
    "dbus_fast",
    "httptools",
    "httpx",
    "tomlkit",
    "pynvml",
    "http.client",
    "email",
)


@contextmanager
def daemon(listener: socket.socket, *, named: str = UNIT) -> Iterator[subprocess.Popen[str]]:
    """The daemon on a listening socket; systemd would start it when a client comes."""
    program = SERVE.format(root=str(ROOT), unit=UNIT)
    argv = ["sh", "-c", SHELL, "sh", named, sys.executable, "-I", "-c", program]
    with subprocess.Popen(
        argv, stdin=listener.fileno(), stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.terminate()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "check.sock"))
        listener.listen(16)
        yield listener


async def test_it_answers_and_leaves_and_comes_back(
    listener: socket.socket,
    tmp_path: Path,
    manager: NotifySocket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that came before the daemon is answered; without clients the daemon ends with status 0.

    `systemctl status` shows meanwhile what it has done, and afterwards why it has left.
    """
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    client = CheckClient(tmp_path / "check.sock")
    for _ in range(2):
        asked = asyncio.create_task(client.check("http://127.0.0.1:1/", PATIENCE_S))
        await asyncio.sleep(0)
        with daemon(listener) as process:
            result = await asked
            assert result is not None
            assert result.detail == "connection refused"
            assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
        assert manager.drain(0.05) == [
            "STATUS=1 check of 1 address · 1 is not up",
            "STATUS=nobody asked for 0.3 s; its socket starts it again",
        ]


def test_without_its_socket_it_says_so(listener: socket.socket) -> None:
    """A daemon that was started by hand names the unit that has its socket."""
    with daemon(listener, named="another.socket") as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert errors == f"<3>{UNIT} passed no socket: systemctl start {UNIT}\n"


@pytest.mark.parametrize("module", ["auditor", "checker"])
def test_a_small_daemon_starts_soon(module: str) -> None:
    """Each start is a process that somebody waits for: it imports what it needs, in 120 ms of CPU time."""
    program = (
        f"import sys, time; sys.path.insert(0, {str(ROOT)!r}); import appliance.helpers.{module};"
        " print(time.process_time()); print(*sys.modules)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(3)
    ]
    modules = {name for name in runs[0][1].split() if not name.startswith("appliance")}
    assert modules.isdisjoint(HEAVY)
    assert min(float(seconds) for seconds, _ in runs) < 0.120


def test_a_signal_ends_it(listener: socket.socket) -> None:
    """SIGTERM ends the daemon at once: it has nothing to save."""
    with daemon(listener) as process:
        began = time.monotonic()
        process.terminate()
        process.wait(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S
