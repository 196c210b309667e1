"""Plain text of what others write: no escape sequence, no control or bidirectional character in it.

Logs, names, reason phrases and errors of other programs are shown to root on a terminal, which obeys what
is in them: colours, titles, a cursor that moves over what was said before, a direction of writing that
turns names around. Each function takes time in proportion to its text.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_SEQUENCE: Final = (
    r"\x1b\[[0-?]*+[ -/]*+[@-~]"  # CSI
    r"|\x9b[0-?]*+[ -/]*+[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*+(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM, APC with their text
    r"|\x1b[ -/]*+[0-~]?"
)
"""Escape sequences of ECMA-48; one without an end is taken for its first two characters."""

_COLON: Final = b": "
"""End of the head of a line of the journal: time, host, and the program with its pid."""
MOST_TOLD: Final = 1000
"""Characters of a sentence that quotes what others have written."""


def plain(text: str, *, kept: str = "") -> str:
    """Return a text in which every character can be printed, without escape sequences.

    Args:
        text: Text of others.
        kept: Control characters that stay. Other white space becomes a space, anything else a ``?``.
    """
    if text.isprintable():
        return text
    import re  # noqa: PLC0415 - for few texts

    text = re.sub(_SEQUENCE, "", text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else " " if c.isspace() else "?" for c in text)


def abridged(text: str) -> str:
    """Return a sentence that quotes others in at most `MOST_TOLD` characters.

    A long one is told by its beginning, which names the fault, and its end, which has the advice.
    """
    if len(text) <= MOST_TOLD:
        return text
    return f"{text[: MOST_TOLD // 2]} … {text[3 - MOST_TOLD // 2 :]}"


def last_redraw(line: str) -> str:
    """Return what a terminal shows of a line that its program began anew with carriage returns."""
    return line.rstrip("\r").rpartition("\r")[2]


class JournalLines:
    """Plain lines of what journalctl prints with a head (``-o short``), taken in pieces.

    Args:
        most: Bytes of a line that are kept; the others are left out.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = b""
        """Beginning of a line that has not ended."""

    def take(self, data: bytes) -> list[str]:
        """Return the lines that end in `data`."""
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > self._most:
            head, colon, text = rest.partition(_COLON)
            redrawn = text[text.rfind(b"\r") :] if b"\r" in text else text
            rest = (head + colon + redrawn)[: self._most]
        self._rest = rest
        return [self._shown(line) for line in lines]

    def end(self) -> list[str]:
        """Return the line that has no end."""
        return self.take(b"\n") if self._rest else []

    def _shown(self, line: bytes) -> str:
        head, colon, text = line.decode(errors="replace").partition(_COLON.decode())
        return plain(f"{head}{colon}{last_redraw(text)}"[: self._most], kept="\t")
