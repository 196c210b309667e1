"""Messages of the daemons to systemd, read at the other end of the notification socket."""

import socket
from pathlib import Path

import pytest

from appliance.system.systemd.daemon import Notices, Readiness
from tests.fakes.notify_socket import NotifySocket


def test_the_supervisor_sends_a_status_only_when_it_changes(
    manager: NotifySocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same status is sent once; a line break in a status adds no line."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    readiness = Readiness()
    readiness.ready()
    for status in ("a serves", "a serves", "b\nserves"):
        readiness.alive(status)
    readiness.stopping()
    manager.wait_for("STOPPING=1")
    assert [message for message in manager.messages if message != "WATCHDOG=1"] == [
        "READY=1",
        "WATCHDOG=1\nSTATUS=a serves",
        "WATCHDOG=1\nSTATUS=b serves",
        "STOPPING=1\nSTATUS=stopping; models keep running",
    ]


def test_a_status_can_leave_the_watchdog_alone(
    manager: NotifySocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The health agent tells its state and feeds the watchdog apart from each other."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    readiness = Readiness()
    for status in ("1 profile", "1 profile", "2 profiles"):
        readiness.tell(status)
    readiness.feed()
    manager.wait_for("WATCHDOG=1")
    assert manager.messages == ["STATUS=1 profile", "STATUS=2 profiles", "WATCHDOG=1"]


def test_nothing_is_sent_and_no_socket_is_left_without_a_manager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A supervisor that was started by hand works; the leak check of every test counts sockets."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    readiness = Readiness()
    readiness.ready()
    readiness.alive("a serves")


def test_notices_wait_until_this_is_the_main_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process notifies systemd only while it is the main process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear, socket.socket() as listener:
        ear.bind(str(tmp_path / "ear"))
        ear.settimeout(1)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "ear"))
        notices = Notices()
        notices.keep(listener, "x")
        notices.drop("y")
        ear.settimeout(0)
        with pytest.raises(BlockingIOError):
            ear.recv(4096)
        ear.settimeout(1)
        notices.ready("all is well")
        notices.alive("all is well")
        notices.alive("still")
        notices.hand_over(42)
        notices.alive("gone")
        data, descriptors, _, _ = socket.recv_fds(ear, 4096, 1)
        socket.close(descriptors[0])
        assert data == b"FDSTORE=1\nFDNAME=x"
        heard = [ear.recv(4096) for _ in range(5)]
        assert heard == [
            b"FDSTOREREMOVE=1\nFDNAME=y",
            b"READY=1\nSTATUS=all is well",
            b"WATCHDOG=1\nSTATUS=all is well",
            b"WATCHDOG=1\nSTATUS=still",
            b"MAINPID=42\nREADY=1",
        ]
        ear.settimeout(0)
        with pytest.raises(BlockingIOError):
            ear.recv(4096)
