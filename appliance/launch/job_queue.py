"""Queue of jobs at systemd over its private socket for root: StartUnit and StopUnit.

The part of the D-Bus wire format that these calls need (D-Bus Specification, "Message
Protocol"): the standard library has none, and a resident program of root imports nothing else.
"""

from __future__ import annotations

import socket
import struct

from appliance.wire.jobs import NO_SUCH_UNIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

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
