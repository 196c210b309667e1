"""Fake of journald's end of its socket, which decodes entries as journald does."""

import socket
from collections.abc import Iterator
from pathlib import Path

Entry = dict[str, list[str]]
"""Values of an entry by the names of its fields."""


class JournalReceiver:
    """Receiver of entries at the journal's end of the socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(0)

    def take(self) -> list[Entry]:
        """Return the entries that were sent since the last call."""
        return [decoded(entry) for entry in self._datagrams()]

    def _datagrams(self) -> Iterator[bytes]:
        while True:
            try:
                yield self._socket.recv(1 << 20)
            except BlockingIOError:
                return

    def close(self) -> None:
        self._socket.close()
        self.path.unlink()


def decoded(entry: bytes) -> Entry:
    """Return the fields of a datagram (systemd's JOURNAL_NATIVE_PROTOCOL)."""
    found: Entry = {}
    while entry:
        line, _, rest = entry.partition(b"\n")
        name, is_plain, value = line.partition(b"=")
        if not is_plain:
            length = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + length], rest[8 + length :]
            assert rest[:1] == b"\n", "a value ends with a line break"
            rest = rest[1:]
        found.setdefault(name.decode(), []).append(value.decode())
        entry = rest
    return found
