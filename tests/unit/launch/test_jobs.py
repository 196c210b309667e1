"""The program that queues jobs: what it asks systemd, what it refuses, and what it understands."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest
from dbus_fast import Message, MessageType
from dbus_fast._private.unmarshaller import Unmarshaller

from appliance.launch.job_queue import call
from appliance.launch.jobs import answer
from appliance.protocol.jobs import (
    ACCESS_DENIED,
    FAILED,
    START,
    STOP,
    JobRefusedError,
    parse_answer,
)

UNIT = "appliance-backend-smol.service"
JOB = "/org/freedesktop/systemd1/job/4711"
NOISE = Message(
    message_type=MessageType.SIGNAL,
    path="/org/freedesktop/systemd1",
    interface="org.freedesktop.systemd1.Manager",
    member="JobNew",
    signature="uos",
    body=[1, JOB, UNIT],
    serial=7,
)
"""What may come before an answer."""


def returned(path: str) -> Message:
    return Message(
        message_type=MessageType.METHOD_RETURN, reply_serial=1, signature="o", body=[path], serial=8
    )


def refused(name: str, text: str) -> Message:
    return Message(
        message_type=MessageType.ERROR,
        error_name=name,
        reply_serial=1,
        signature="s",
        body=[text],
        serial=8,
    )


class Systemd:
    """systemd's private socket, which answers one call, in a thread of its own."""

    def __init__(self, path: Path, *said: bytes) -> None:
        self.path = path
        self.calls: list[Message] = []
        self._said = said
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with self._listener, connection, connection.makefile("rb") as lines:
            assert lines.readline() == b"\0AUTH EXTERNAL 30\r\n"
            assert lines.readline() == b"BEGIN\r\n"
            connection.sendall(b"OK 0123456789abcdef\r\n")
            self.calls.append(read(lines.peek()))
            connection.sendall(b"".join(self._said))


def read(data: bytes) -> Message:
    """A message as another library reads it."""
    found = Unmarshaller(BytesIO(data)).unmarshall()  # type: ignore[arg-type]  # reads any stream
    assert found is not None
    return found


@pytest.fixture
def applied(tmp_path: Path) -> str:
    """Root's copies of what it installed."""
    (tmp_path / UNIT).touch()
    return str(tmp_path)


@contextmanager
def systemd(*said: Message | bytes) -> Iterator[Systemd]:
    """One that says this to a call."""
    raw = [m if isinstance(m, bytes) else bytes(m._marshall(negotiate_unix_fd=False)) for m in said]
    path = Path(f"/tmp/systemd-{os.getpid()}")  # noqa: S108 - a unix socket's path is short
    fake = Systemd(path, *raw)
    try:
        yield fake
    finally:
        fake.thread.join(5)
        path.unlink()
        assert not fake.thread.is_alive()


@pytest.mark.parametrize(("verb", "method"), [(START, "StartUnit"), (STOP, "StopUnit")])
def test_every_job_has_the_mode_that_touches_nothing_else(
    verb: str, method: str, applied: str
) -> None:
    """The call, as another D-Bus library reads it, and the job that it answers with."""
    with systemd(NOISE, returned(JOB)) as manager:
        said = answer(f"{verb} {UNIT}", applied=applied, systemd=str(manager.path))
    (asked,) = manager.calls
    assert (asked.member, asked.body) == (method, [UNIT, "replace"])
    assert (asked.path, asked.interface) == (
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
    )
    assert parse_answer(f"{said}\n") == JOB


@pytest.mark.parametrize("unit", ["a", "é" * 20, "x" * 255])
def test_names_of_any_length_are_written_as_another_library_reads_them(unit: str) -> None:
    """Padding and lengths count bytes."""
    assert read(call("StartUnit", unit, "replace")).body == [unit, "replace"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "start",
        f"isolate {UNIT}",
        f"restart {UNIT}",
        f"start {UNIT} flush",
        f"start  {UNIT}",
        "start ssh.service",
        "start appliance-backend-other.service",
        "start appliance-backend-../../x.service",
        "start appliance-supervisor.service",
        "start reboot.target",
        "start appliance-backend-\0.service",
    ],
)
def test_everything_else_is_refused(line: str, applied: str) -> None:
    """No other verb, no mode, no unit but those that were applied: systemd is not even asked."""
    with pytest.raises(JobRefusedError) as refusal:
        parse_answer(answer(line, applied=applied, systemd="/nonexistent"))
    assert refusal.value.name == ACCESS_DENIED


def test_systemds_refusal_is_passed_on(applied: str) -> None:
    """With the name by which the supervisor knows what to say."""
    name = "org.freedesktop.systemd1.NoSuchUnit"
    with systemd(refused(name, "Unit not\nfound.")) as manager:
        said = answer(f"start {UNIT}", applied=applied, systemd=str(manager.path))
    with pytest.raises(JobRefusedError, match=r"Unit not found\.") as refusal:
        parse_answer(said)
    assert refusal.value.name == name


@pytest.mark.parametrize(
    "said",
    [b"", b"x" * 15, b"B" + b"\0" * 15, b"l\2\0\1" + b"\xff" * 12, b"l\2\0\1" + b"\0" * 12],
)
def test_a_damaged_answer_is_an_error(said: bytes, applied: str) -> None:
    """Cut, huge, of the other byte order: the supervisor is told, and the next request is served."""
    with systemd(said) as manager:
        text = answer(f"start {UNIT}", applied=applied, systemd=str(manager.path))
    assert text.startswith(f"error {FAILED} systemd cannot be asked: ")


def test_a_lost_answer_is_an_error() -> None:
    """A program that died in the middle says nothing at all."""
    with pytest.raises(JobRefusedError) as refusal:
        parse_answer("")
    assert refusal.value.name == FAILED
