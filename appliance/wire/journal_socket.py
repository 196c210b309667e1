"""Client of the journal's socket: log lines with fields (systemd's JOURNAL_NATIVE_PROTOCOL).

A datagram is one entry, a line ``NAME=value`` for each field. A value with line breaks is sent as
``NAME``, a line break, its length in 64 bits with the lowest byte first, the value and a line break.

Daemons and the gate send with it, so it imports the standard library alone. Nothing here waits for a
journal that is slow, except `settle` for the time that it is given.
"""

from __future__ import annotations

import os
import socket
import time

from appliance.model.plain_text import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

JOURNAL_SOCKET = "/run/systemd/journal/socket"
STREAM_VARIABLE = "JOURNAL_STREAM"
"""Variable in which systemd names device and inode of the stream that it connected to the journal."""
MOST_VALUE_BYTES = 32 * 1024
"""Longest value; more is cut. A line on standard error is cut by journald at 48 KiB (LineMax=)."""
MOST_ENTRY_BYTES = 96 * 1024
"""Longest entry; further fields are left out. The kernel's least bound of a datagram is 208 KiB."""
_DAEMON_FACILITY = "3"
_SIOCOUTQ = 0x5411
_LENGTH_BYTES = 8
_STDERR = 2
_PAUSE_S = 0.001


class JournalSocket:
    """Connection to the journal; not usable while the journal cannot be reached."""

    def __init__(self, path: str = JOURNAL_SOCKET) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._connect()

    @property
    def is_usable(self) -> bool:
        return self._socket is not None

    def send(self, entry: bytes) -> bool:
        """Send an entry; False: the journal reads too slowly, or cannot be reached.

        A journal that was started anew is connected to again.
        """
        for _ in range(2):
            if self._socket is None:
                self._connect()
            if self._socket is None:
                return False
            try:
                self._socket.send(entry)
            except BlockingIOError:
                return False
            except OSError:
                self.close()
            else:
                return True
        return False

    def settle(self, within_s: float) -> bool:
        """Wait until the journal has read every entry; False: it has not.

        The journal finds the unit of an entry by the process that sent it, which must still exist.
        """
        end_s = time.monotonic() + within_s
        while self._socket is not None and self._unread_bytes(self._socket):
            if time.monotonic() >= end_s:
                return False
            time.sleep(_PAUSE_S)
        return True

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _connect(self) -> None:
        try:
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        except OSError:
            return  # the unit of the auditor allows no new sockets
        channel.settimeout(0)
        try:
            channel.connect(self._path)
        except OSError:
            channel.close()
            return
        self._socket = channel

    @staticmethod
    def _unread_bytes(channel: socket.socket) -> int:
        import fcntl  # noqa: PLC0415 - needed at the end of a process alone

        answer = fcntl.ioctl(channel, _SIOCOUTQ, bytes(4))
        return int.from_bytes(answer, "little")


def encode_entry(fields: Iterable[tuple[str, str]]) -> bytes:
    """Return the datagram of an entry, in which long values are cut.

    Args:
        fields: Names of capitals, digits and ``_`` with their values; a name may come again.
    """
    parts: list[bytes] = []
    room = MOST_ENTRY_BYTES
    for name, text in fields:
        # A character takes a byte at least: cut first, so that a long text costs no more than this.
        value = text[:MOST_VALUE_BYTES].encode("utf-8", "replace")[:MOST_VALUE_BYTES]
        value = value.decode("utf-8", "ignore").encode()  # no half of a character at the end
        if b"\n" in value:
            length = len(value).to_bytes(_LENGTH_BYTES, "little")
            part = b"%s\n%s%s\n" % (name.encode(), length, value)
        else:
            part = b"%s=%s\n" % (name.encode(), value)
        if len(part) <= room:
            parts.append(part)
            room -= len(part)
    return b"".join(parts)


def entry_head(text: str, *, priority: int, identifier: str) -> list[tuple[str, str]]:
    """Return the fields that every entry has.

    Args:
        text: Message.
        priority: Priority of syslog(3).
        identifier: Identifier of the program, as ``SyslogIdentifier=`` of its unit.
    """
    return [
        ("MESSAGE", plain(text, kept="\n\t")),
        ("PRIORITY", str(priority)),
        ("SYSLOG_FACILITY", _DAEMON_FACILITY),
        ("SYSLOG_IDENTIFIER", identifier),
    ]


def stderr_is_journal(environment: Mapping[str, str]) -> bool:
    """Tell whether standard error leads to the journal, as it does in a unit (systemd.exec(5))."""
    try:
        status = os.fstat(_STDERR)
    except OSError:
        return False
    return environment.get(STREAM_VARIABLE) == f"{status.st_dev}:{status.st_ino}"
