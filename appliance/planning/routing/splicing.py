"""Changing parts of a body without touching the rest."""

from collections.abc import Iterable

Cut = tuple[int, int, bytes]
"""From, to, and what comes in its place."""


def spliced(body: bytes, cuts: Iterable[Cut]) -> bytes:
    """The body with its cuts, which must not overlap; the very same object without any."""
    pieces: list[bytes] = []
    at = 0
    for start, end, new in sorted(cuts):
        pieces += (body[at:start], new)
        at = end
    if not pieces:
        return body
    pieces.append(body[at:])
    return b"".join(pieces)
