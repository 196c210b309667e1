"""Cache of a head that was already parsed and checked.

A client's second request has the head of its first one, but for the length of its body; so have
an engine's responses. A head that differs from one that was checked in nothing but the digits of
its length says the same, and need not be parsed again.
"""

import re
from typing import Final, Self

_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?([0-9]{1,15})\r\n")
_NAME: Final = b"content-length"
_DIGITS: Final = 15


class CachedHead:
    """Bytes of a head around the digits of its length."""

    __slots__ = ("_after", "_after_size", "_before", "_most", "_start")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._start = len(before)
        """Position where the digits begin."""
        self._most = self._start + _DIGITS + 1
        """Position where the digits have ended."""
        self._after = after
        self._after_size = len(after)

    @classmethod
    def of(cls, raw: bytes) -> Self | None:
        """Return the cached form of a head; None: its length is not in the usual place.

        Args:
            raw: Head of a message without a body, or with a length; with its last empty line.
        """
        found = _LENGTH.search(raw)
        if raw.lower().count(_NAME) != (found is not None):
            return None
        if found is None:
            return cls(raw, b"")
        return cls(raw[: found.start(1)], raw[found.end(1) :])

    def match(self, data: bytes) -> tuple[int, int] | None:
        """Return the length of the body, and of the head, if data begins with it; else None."""
        if not data.startswith(self._before):
            return None
        start = self._start
        if not self._after_size:
            return 0, start
        end = data.find(b"\r", start, self._most)
        digits = data[start:end]
        if digits.isdigit() and data.startswith(self._after, end):
            return int(digits), end + self._after_size
        return None
