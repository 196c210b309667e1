"""Keys that a terminal sends, from the bytes that it sends for them.

===========  =========================  =======================================================
state        byte                       becomes
===========  =========================  =======================================================
plain        ESC                        escape
plain        another                    plain; the key of the byte
escape       ``[`` or ``O``             sequence
escape       another                    plain; the key escape, and what the byte is by itself
sequence     0x20 to 0x3f               sequence, up to 16 bytes
sequence     0x40 to 0x7e               plain; the key of the sequence, none for an unknown one
===========  =========================  =======================================================

An ESC that nothing follows within one reading is the key of that name: terminals send a sequence at once.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

UP: Final = "up"
DOWN: Final = "down"
ENTER: Final = "enter"
ESCAPE: Final = "escape"
PAGE_UP: Final = "page-up"
PAGE_DOWN: Final = "page-down"
_BYTES: Final = {0x0A: ENTER, 0x0D: ENTER, 0x08: ESCAPE, 0x7F: ESCAPE}
"""Keys of single bytes that are no letters; going back is what the backspace key is for."""
_SEQUENCES: Final = {
    b"A": UP,
    b"B": DOWN,
    b"C": ENTER,
    b"D": ESCAPE,
    b"5~": PAGE_UP,
    b"6~": PAGE_DOWN,
}
"""Keys of sequences (ECMA-48, and xterm's application mode); right opens, left goes back."""
_ESC: Final = 0x1B
_MOST_SEQUENCE: Final = 16


class KeyDecoder:
    """Decoder of what one terminal sends."""

    def __init__(self) -> None:
        self._pending: bytes | None = None
        """Bytes of a sequence after its ESC; None: plain."""

    def keys(self, data: bytes) -> list[str]:
        """Return the keys of one reading: letters as they are, others by name."""
        found: list[str] = []
        for byte in data:
            self._take(byte, found)
        if self._pending == b"":
            self._pending = None
            found.append(ESCAPE)
        return found

    def _take(self, byte: int, found: list[str]) -> None:
        if self._pending is None:
            self._take_plain(byte, found)
        elif self._pending == b"":
            if byte in b"[O":
                self._pending = bytes([byte])
            else:
                self._pending = None
                found.append(ESCAPE)
                self._take_plain(byte, found)
        elif 0x40 <= byte <= 0x7E:  # noqa: PLR2004 - final bytes of ECMA-48
            key = _SEQUENCES.get(self._pending[1:] + bytes([byte]))
            self._pending = None
            found.extend([key] if key else [])
        elif len(self._pending) < _MOST_SEQUENCE:
            self._pending += bytes([byte])
        else:
            self._pending = None

    def _take_plain(self, byte: int, found: list[str]) -> None:
        if byte == _ESC:
            self._pending = b""
        elif byte in _BYTES:
            found.append(_BYTES[byte])
        elif 0x20 <= byte < 0x7F:  # noqa: PLR2004 - printable ASCII
            found.append(chr(byte))
