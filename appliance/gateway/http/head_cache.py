"""Heads that were read before.

A client's second request has the head of its first one, but for the length of its body; so have
an engine's answers. A head that differs from one that was checked in nothing but the digits of
its length says the same, and need not be parsed again.
"""

import re
from typing import Final, Self

_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?([0-9]{1,15})\r\n")
_NAME: Final = b"content-length"
_DIGITS: Final = 15


class Known:
    """The bytes of a head around the length."""

    __slots__ = ("_after", "_after_size", "_before", "_most", "_start")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._start = len(before)
        """Of the digits."""
        self._most = self._start + _DIGITS + 1
        """Where they have ended."""
        self._after = after
        self._after_size = len(after)

    @classmethod
    def of(cls, raw: bytes) -> Self | None:
        """To know a head again.

        Args:
            raw: The head of a message without a body, or with a length; with its last empty line.

        Returns:
            None: its length is not where it is looked for.
        """
        found = _LENGTH.search(raw)
        if raw.lower().count(_NAME) != (found is not None):
            return None
        if found is None:
            return cls(raw, b"")
        return cls(raw[: found.start(1)], raw[found.end(1) :])

    def fits(self, data: bytes) -> tuple[int, int] | None:
        """Length of the body, and of the head, if data begins with it; None: it does not."""
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
