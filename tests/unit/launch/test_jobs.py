"""The program that queues jobs: what it asks systemd, what it refuses, and what it understands."""

import io
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from dbus_fast import Message, MessageType
from dbus_fast._private.unmarshaller import Unmarshaller

from appliance.launch.jobs import answer, call
from appliance.model.names import HOLD_UNIT
from appliance.wire.jobs import (
    ACCESS_DENIED,
    FAILED,
    NO_SUCH_UNIT,
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
"""Messages that may come before an answer."""
RESET = Message(message_type=MessageType.METHOD_RETURN, reply_serial=1, serial=6)
"""Answer to ResetFailedUnit."""


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
    """systemd's private socket, which answers calls in turn, in a thread of its own."""

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
            for said in self._said:
                self.calls.append(read(lines))
                connection.sendall(said)


def read(stream: io.BufferedIOBase) -> Message:
    """A message as another library reads it."""
    found = Unmarshaller(stream).unmarshall()  # type: ignore[arg-type]  # reads any stream
    assert found is not None
    return found


@pytest.fixture
def applied(tmp_path: Path) -> str:
    """Root's copies of what it installed."""
    (tmp_path / UNIT).touch()
    return str(tmp_path)


def marshalled(*messages: Message) -> bytes:
    """Messages as they come over the wire."""
    return b"".join(bytes(message._marshall(negotiate_unix_fd=False)) for message in messages)


@contextmanager
def systemd(*said: Message | bytes) -> Iterator[Systemd]:
    """One that says this, each to one call."""
    raw = [m if isinstance(m, bytes) else marshalled(m) for m in said]
    path = Path(f"/tmp/systemd-{os.getpid()}")  # noqa: S108 - a unix socket's path is short
    fake = Systemd(path, *raw)
    try:
        yield fake
    finally:
        fake.thread.join(5)
        path.unlink()
        assert not fake.thread.is_alive()


@pytest.mark.parametrize(
    ("verb", "unit", "methods"),
    [
        (START, UNIT, {"ResetFailedUnit": [UNIT], "StartUnit": [UNIT, "replace"]}),
        (STOP, UNIT, {"StopUnit": [UNIT, "replace"]}),
        (START, HOLD_UNIT, {"StartUnit": [HOLD_UNIT, "replace"]}),
    ],
)
def test_every_job_has_the_mode_that_touches_nothing_else(
    verb: str, unit: str, methods: Mapping[str, list[str]], applied: str
) -> None:
    """The calls, as another D-Bus library reads them, and the job; a backend's start resets its limit."""
    answers = (marshalled(RESET), marshalled(NOISE, returned(JOB)))
    with systemd(*answers[-len(methods) :]) as manager:
        said = answer(f"{verb} {unit}", applied=applied, systemd=str(manager.path))
    assert {asked.member: asked.body for asked in manager.calls} == methods
    assert {(asked.path, asked.interface) for asked in manager.calls} == {
        ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
    }
    assert parse_answer(f"{said}\n") == JOB


def test_a_unit_that_is_not_in_memory_has_no_start_limit_to_reset(applied: str) -> None:
    """A start makes systemd load the unit."""
    unknown = refused(NO_SUCH_UNIT, "Unit not loaded.")
    with systemd(unknown, returned(JOB)) as manager:
        said = answer(f"start {UNIT}", applied=applied, systemd=str(manager.path))
    assert parse_answer(f"{said}\n") == JOB


def test_nothing_is_started_that_could_not_be_reset(applied: str) -> None:
    """The refusal of the reset is the answer."""
    with systemd(refused(ACCESS_DENIED, "No.")) as manager:
        said = answer(f"start {UNIT}", applied=applied, systemd=str(manager.path))
    assert said == f"error {ACCESS_DENIED} No."
    assert [asked.member for asked in manager.calls] == ["ResetFailedUnit"]


@pytest.mark.parametrize("unit", ["a", "é" * 20, "x" * 255])
def test_names_of_any_length_are_written_as_another_library_reads_them(unit: str) -> None:
    """Padding and lengths count bytes."""
    assert read(io.BytesIO(call("StartUnit", unit, "replace"))).body == [unit, "replace"]


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


def test_the_unit_beside_an_applied_one_may_be_started(applied: str) -> None:
    """The unit that asks an engine about its build has no entry of its own among the applied ones."""
    unit = UNIT.replace("-backend-", "-build-")
    with systemd(RESET, returned(JOB)) as manager:
        said = answer(f"start {unit}", applied=applied, systemd=str(manager.path))
    assert parse_answer(said) == JOB
    with pytest.raises(JobRefusedError, match="not one that was applied"):
        parse_answer(answer("start appliance-build-other.service", applied=applied))


def test_systemds_refusal_is_passed_on(applied: str) -> None:
    """With the name by which the supervisor knows what to say."""
    name = NO_SUCH_UNIT
    with systemd(RESET, refused(name, "Unit not\nfound.")) as manager:
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
