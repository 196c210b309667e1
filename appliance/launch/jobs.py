"""Server that queues jobs for the supervisor: ``ExecStart=`` of appliance-jobs.service, as root.

systemd lets polkit see a job's unit and verb, but not its mode, and some modes reach beyond the unit:
``flush`` cancels every job on the box, ``replace-irreversibly`` can hold up a shutdown. So polkit
allows the supervisor no jobs at all; this program queues them, with the mode ``replace`` alone. The
start of a backend resets the unit's start limit first, so that only crashes after it count.

The format of requests and answers is that of `appliance.wire.jobs`. The socket's mode says who may connect.
Units are those that `appliance apply` has installed, backends and the units that ask engines about
their builds, and the static ones below.

The jobs go to systemd's private socket for root, in the part of the D-Bus wire format that StartUnit and
StopUnit need (D-Bus Specification, "Message Protocol"): the standard library has no D-Bus, and a resident
program of root imports nothing else.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

from appliance.launch.program import ERROR, EX_USAGE, WARNING, Options, UsageError, say
from appliance.model.names import (
    APPLY_UNIT,
    HOLD_UNIT,
    RUN_UNIT,
    profile_of,
    profile_of_build,
    unit_of,
)
from appliance.model.paths import APPLIED_DIR, APPLIED_UNITS
from appliance.wire.jobs import (
    ACCESS_DENIED,
    FAILED,
    MAX_LINE_BYTES,
    NO_SUCH_UNIT,
    START,
    STOP,
    JobRefusedError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


PRIVATE_SOCKET = "/run/systemd/private"
_TIMEOUT_S = 20.0
_AUTHENTICATION = b"\0AUTH EXTERNAL 30\r\nBEGIN\r\n"
"""Authentication of root: 30 is "0", the uid, in hexadecimal. BEGIN is sent at once, as libsystemd
does; systemd 252 leaves bytes that arrive together with BEGIN, after the answer, in its buffer
until more arrive."""
_MAX_MESSAGE_BYTES = 64 << 10
_HEADER = struct.Struct("<cBBBIII")
_CALL, _RETURN, _ERROR = 1, 2, 3
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY_SERIAL = 1, 2, 3, 4, 5
_DESTINATION, _SIGNATURE = 6, 8
_SERIAL = 1


class RefusedError(Exception):
    """Error answer of systemd to a call. `name` is the error's D-Bus name."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def queue_job(method: str, unit: str, *, path: str = PRIVATE_SOCKET, resets: bool = False) -> str:
    """Call ``StartUnit`` or ``StopUnit`` with the mode ``replace``; returns the job's object path.

    Args:
        method: The one or the other.
        unit: The unit's name.
        path: Of systemd's socket.
        resets: First reset the count of the unit's starts, which includes those by hand.

    Raises `RefusedError`, and OSError when systemd does not answer, or answers nonsense.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(path)
        connection.sendall(_AUTHENTICATION)
        if not _line(connection).startswith(b"OK "):
            raise OSError("systemd refused the authentication")
        if resets:
            # Not earlier: a unit that systemd gave up on has to stay marked as such until its
            # start, or an operation that ends before the start would leave the unit unrepaired.
            _reset(connection, unit)
        return _answered(connection, method, unit, "replace")


def _reset(connection: socket.socket, unit: str) -> None:
    """Reset a unit's count of starts and its failure; a unit that is not in memory has neither."""
    try:
        _answered(connection, "ResetFailedUnit", unit)
    except RefusedError as error:
        if error.name != NO_SUCH_UNIT:
            raise


def _answered(connection: socket.socket, method: str, *arguments: str) -> str:
    """Call a method; returns the first string of its answer. Raises like `queue_job`."""
    connection.sendall(call(method, *arguments))
    while True:
        kind, fields, text = _message(connection)
        if fields.get(_REPLY_SERIAL) == _SERIAL and kind in {_RETURN, _ERROR}:
            break
    if kind == _ERROR:
        raise RefusedError(str(fields.get(_ERROR_NAME, "")), text)
    return text


def call(method: str, *arguments: str) -> bytes:
    """Return one method call of systemd's manager, all of whose arguments are strings."""
    body = b""
    for argument in arguments:
        body = _padded(body, 4) + _string(argument)
    fields = b""
    for code, kind, value in (
        (_PATH, b"o", _string("/org/freedesktop/systemd1")),
        (_INTERFACE, b"s", _string("org.freedesktop.systemd1.Manager")),
        (_MEMBER, b"s", _string(method)),
        (_DESTINATION, b"s", _string("org.freedesktop.systemd1")),
        (_SIGNATURE, b"g", bytes([len(arguments)]) + b"s" * len(arguments) + b"\0"),
    ):
        fields = _padded(fields, 8) + bytes([code, 1]) + kind + b"\0" + value
    header = _HEADER.pack(b"l", _CALL, 0, 1, len(body), _SERIAL, len(fields))
    return _padded(header + fields, 8) + body


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<I", len(raw)) + raw + b"\0"


def _padded(data: bytes, to: int) -> bytes:
    return data + b"\0" * (-len(data) % to)


def _line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\r\n"):
        line += _exactly(connection, 1)
        if len(line) > _MAX_MESSAGE_BYTES:
            raise OSError("systemd's answer is too long")
    return line


def _message(connection: socket.socket) -> tuple[int, dict[int, object], str]:
    """Return kind, header fields and first string of the next message."""
    header = _exactly(connection, _HEADER.size)
    order, kind, _flags, _version, body_bytes, _serial, field_bytes = _HEADER.unpack(header)
    padded_bytes = field_bytes + -field_bytes % 8
    if order != b"l" or padded_bytes + body_bytes > _MAX_MESSAGE_BYTES:
        raise OSError("systemd's message is no D-Bus message of this byte order and size")
    rest = _exactly(connection, padded_bytes + body_bytes)
    try:
        fields = dict(_fields(rest[:field_bytes]))
        text = _text(rest, padded_bytes) if body_bytes and kind in {_RETURN, _ERROR} else ""
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise OSError("systemd's message is damaged") from error
    return kind, fields, text


def _fields(data: bytes) -> Iterator[tuple[int, object]]:
    place = 0
    while place < len(data):
        code, kind = data[place], data[place + 2 : place + 3]
        place += 4
        if kind == b"u":
            yield code, struct.unpack_from("<I", data, place)[0]
            place += 4
        elif kind == b"g":
            place += data[place] + 2
        else:
            text = _text(data, place)
            yield code, text
            place += 4 + len(text.encode()) + 1
        place += -place % 8


def _text(data: bytes, place: int) -> str:
    (length,) = struct.unpack_from("<I", data, place)
    return data[place + 4 : place + 4 + length].decode()


def _exactly(connection: socket.socket, count: int) -> bytes:
    chunks = b""
    while len(chunks) < count:
        chunk = connection.recv(count - len(chunks))
        if not chunk:
            raise OSError("systemd closed the connection")
        chunks += chunk
    return chunks


_METHODS = {START: "StartUnit", STOP: "StopUnit"}
_STATIC = frozenset({HOLD_UNIT, RUN_UNIT, APPLY_UNIT})
_APPLIED = f"{APPLIED_DIR}/{APPLIED_UNITS}"
_FLAGS = ("applied-units", "systemd", "listen-fd")
"""Flags for tests; the unit gives none."""
_FIRST_FD = 3
_REQUEST_TIMEOUT_S = 2.0


def answer(line: str, *, applied: str = _APPLIED, systemd: str = PRIVATE_SOCKET) -> str:
    """Carry out a request; returns the line of the answer."""
    verb, _, unit = line.partition(" ")
    try:
        return f"job {_queued(verb, unit, applied, systemd)}"
    except JobRefusedError as error:
        text = " ".join(str(error).split())
        say(WARNING, f"no job for {line!r:.200}: {text}")
        return f"error {error.name} {text}"


def _queued(verb: str, unit: str, applied: str, systemd: str) -> str:
    method = _METHODS.get(verb)
    if method is None:
        raise JobRefusedError(ACCESS_DENIED, "a job is a start or a stop")
    if unit not in _STATIC and not _is_applied(unit, applied):
        raise JobRefusedError(ACCESS_DENIED, "the unit is not one that was applied")
    try:
        return queue_job(method, unit, path=systemd, resets=verb == START and unit not in _STATIC)
    except RefusedError as error:
        raise JobRefusedError(error.name or FAILED, str(error)) from error
    except OSError as error:
        raise JobRefusedError(FAILED, f"systemd cannot be asked: {error}") from error


def _is_applied(unit: str, directory: str) -> bool:
    name = profile_of(unit) or profile_of_build(unit)
    return name is not None and os.path.isfile(f"{directory}/{unit_of(name)}")


def _serve(connection: socket.socket, options: Options) -> None:
    connection.settimeout(_REQUEST_TIMEOUT_S)
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
        chunk = connection.recv(MAX_LINE_BYTES - len(line))
        if not chunk:
            return
        line += chunk
    text = answer(
        line.decode(errors="replace").rstrip("\n"),
        applied=options.text("applied-units", _APPLIED),
        systemd=options.text("systemd", PRIVATE_SOCKET),
    )
    connection.sendall(text.encode() + b"\n")


def main(argv: Sequence[str]) -> int:
    """Serve for ever."""
    try:
        options = Options(argv, _FLAGS)
        listener = socket.socket(fileno=options.whole("listen-fd") or _FIRST_FD)
    except (UsageError, OSError) as error:
        say(ERROR, f"jobs: {error}")
        return EX_USAGE
    while True:
        connection, _ = listener.accept()
        with connection:
            try:
                _serve(connection, options)
            except OSError as error:
                say(WARNING, f"a request was lost: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
