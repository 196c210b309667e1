"""Parser of server-sent events: a response in pieces as they arrive, and its events.

Of the format only what engines use is read: lines that end with a line feed, with or without a
carriage return, and of their fields only ``data`` (html.spec.whatwg.org, 9.2.6). Each byte is
looked at once, however the response is cut.
"""

from collections.abc import Mapping
from typing import Final

DONE: Final = b"[DONE]"
"""Data of the event with which OpenAI's API ends a stream."""
MOST_BYTES: Final = 4 << 20
"""Limit of a probe's response. 256 tokens take 80 KB, and four times as much with the
probabilities that an operator's options may add."""
_DATA: Final = b"data:"


class EventStreamParser:
    """Parser of one response."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._bytes_left = most_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self.overflowed = False
        """Whether the response is longer than its limit; no more of it is read then."""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of each event that ends in `piece`."""
        self._bytes_left -= len(piece)
        if self._bytes_left < 0:
            self.overflowed = True
            self._line, self._data = [], []
            return []
        first, *others = piece.split(b"\n")
        self._line.append(first)
        events: list[bytes] = []
        for other in others:
            self._end_line(b"".join(self._line).removesuffix(b"\r"), events)
            self._line = [other]
        return events

    def _end_line(self, line: bytes, events: list[bytes]) -> None:
        if line.startswith(_DATA):
            self._data.append(line[len(_DATA) :].removeprefix(b" "))
        elif not line and self._data:
            events.append(b"\n".join(self._data))
            self._data = []


def text_of_choice(choice: Mapping[str, object]) -> str:
    """Return the text of a choice of a completion or of a chat; empty: it has none."""
    delta = choice.get("delta")
    found = [choice.get("text")]
    if isinstance(delta, dict):
        found += [delta.get(key) for key in ("reasoning_content", "reasoning", "content")]
    return "".join(text for text in found if isinstance(text, str))
