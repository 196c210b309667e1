"""Terminal whose whole screen this process paints, and which it leaves as it was.

===========  ==========================  =======================================================
state        event                       then
===========  ==========================  =======================================================
painting     Ctrl-Z (SIGTSTP)            terminal restored, process stopped; SIGCONT: painting
painting     SIGCONT after SIGSTOP       painting anew: a shell may have changed the terminal
painting     SIGWINCH                    painting anew in the new size
painting     SIGTERM, SIGHUP             `ended_by` is set; the caller leaves
painting     an exception, a return      terminal restored
===========  ==========================  =======================================================

Handlers only take notes: what is due happens in `wait`, between two frames.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios

from appliance.cli.cells import width
from appliance.model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import FrameType, TracebackType
    from typing import Any, Final, Self

    from appliance.cli.terminal import Terminal


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
    """Decoder of the keys that a terminal sends, from the bytes that it sends for them.

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


CLEAR: Final = "\x1b[H\x1b[2J"
_TO_END: Final = "\x1b[K"


class ScreenLines:
    """Lines that a terminal shows, as far as they were sent, and what has to be sent for others.

    Only lines that differ are written, each from its beginning, and no more than a given number of bytes at a
    time, so that a key is answered also on a slow line. What did not fit is different still, and comes first
    the next time. Lines are as `appliance.cli.cells` makes them, no wider than the screen.
    """

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._columns = 0
        self._first = 0
        """Row that is looked at first."""

    def forget(self) -> None:
        """Take the screen for unknown: the next difference paints all of it."""
        self._shown = []

    def difference(
        self, lines: Sequence[str], *, columns: int, rows: int, most_bytes: int
    ) -> tuple[str, bool]:
        """Return what to send, and whether the screen shows `lines` then.

        Args:
            lines: Lines to show; those from `rows` on are left out.
            columns: Width of the screen now.
            rows: Its height.
            most_bytes: Most bytes to send, apart from the first line.
        """
        pieces: list[str] = []
        if len(self._shown) != rows or self._columns != columns:
            self._shown, self._columns, self._first = [""] * rows, columns, 0
            pieces.append(CLEAR)
        wanted = [*lines[:rows], *[""] * (rows - len(lines))]
        sent_bytes = 0
        for row in (*range(self._first, rows), *range(self._first)):
            if wanted[row] == self._shown[row]:
                continue
            end = "" if width(wanted[row]) >= columns else _TO_END
            piece = f"\x1b[{row + 1};1H{wanted[row]}{end}"
            sent_bytes += len(piece.encode(errors="replace"))
            if sent_bytes > most_bytes and len(pieces) > (pieces[:1] == [CLEAR]):
                self._first = row
                return "".join(pieces), False
            pieces.append(piece)
            self._shown[row] = wanted[row]
        self._first = 0
        return "".join(pieces), True


FRAME_BYTES: Final = 4096
"""Most bytes of a frame: 80 by 24 cells and their styles, 4 s of a line with 9600 bits a second."""
_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""Alternate screen, no cursor, and no wrap where a terminal finds a character wider than we do."""
_LEAVE: Final = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_SIGNALS: Final = (
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGCONT,
    signal.SIGTERM,
    signal.SIGHUP,
)
_READ_BYTES: Final = 1024


class Wake(Record):
    """Events that `wait` has seen."""

    keys: tuple[str, ...] = ()
    ready: tuple[int, ...] = ()
    """Descriptors of the caller that can be read."""
    is_changed: bool = False
    """Whether the screen has another size, or has to be painted anew."""


class FullScreen:
    """Screen and keyboard of a terminal, from `with` to its end.

    Args:
        terminal: Output; a terminal.
        keyboard: Descriptor of its keyboard; None: there is none.
    """

    def __init__(self, terminal: Terminal, keyboard: int | None) -> None:
        self.ended_by = 0
        """Signal after which the screen ends; 0: none came."""
        self._terminal = terminal
        self._output = terminal.stream.fileno()
        self._keyboard = keyboard
        self._lines = ScreenLines()
        self._decoder = KeyDecoder()
        self._seen: set[int] = set()
        self._before: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._bell = (-1, -1)
        self._old_bell = -1

    def __enter__(self) -> Self:
        self._bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old_bell = signal.set_wakeup_fd(self._bell[1], warn_on_full_buffer=False)
        self._handlers = {number: signal.signal(number, self._note) for number in _SIGNALS}
        try:
            self._take()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_bell)
        for descriptor in self._bell:
            os.close(descriptor)

    def size(self) -> tuple[int, int]:
        """Return columns and rows of now, at least one each."""
        try:
            found = os.get_terminal_size(self._output)
        except OSError:
            return 80, 24
        return found.columns or 80, found.lines or 24

    def paint(self, lines: Sequence[str]) -> bool:
        """Write what differs from the last frame; return whether all of it was written.

        A terminal that takes nothing more now gets nothing: the next frame has the rest.
        """
        if not select.select([], [self._output], [], 0)[1]:
            return False
        columns, rows = self.size()
        text, complete = self._lines.difference(
            [self._terminal.shown(line) for line in lines],
            columns=columns,
            rows=rows,
            most_bytes=FRAME_BYTES,
        )
        self._write(text)
        return complete

    def wait(self, descriptors: Iterable[int], timeout_s: float) -> Wake:
        """Wait for keys, signals and `descriptors`; deal with signals that concern the screen."""
        own = [self._bell[0], *([] if self._keyboard is None else [self._keyboard])]
        ready = select.select([*own, *descriptors], [], [], max(timeout_s, 0.0))[0]
        if self._bell[0] in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._bell[0], _READ_BYTES)
        is_changed = self._heed()
        keys = self._keys() if self._keyboard in ready else ()
        return Wake(tuple(keys), tuple(fd for fd in ready if fd not in own), is_changed)

    def _keys(self) -> Sequence[str]:
        try:
            data = os.read(self._keyboard or 0, _READ_BYTES)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self.ended_by = self.ended_by or signal.SIGHUP
        return self._decoder.keys(data)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._seen.add(number)

    def _heed(self) -> bool:
        """Do what signals ask for; return whether the screen has to be painted anew."""
        seen, self._seen = self._seen, set()
        for number in (signal.SIGTERM, signal.SIGHUP):
            if number in seen:
                self.ended_by = number
        if self.ended_by:
            return False
        if signal.SIGTSTP in seen:
            self._give_back()
            os.kill(os.getpid(), signal.SIGSTOP)
            self._take()
        elif signal.SIGCONT in seen:
            self._take()
        if signal.SIGWINCH in seen:
            self._lines.forget()
        return bool(seen)

    def _take(self) -> None:
        """Make the terminal ours, and its contents unknown."""
        if self._keyboard is not None:
            found = termios.tcgetattr(self._keyboard)
            self._before = self._before or found
            raw = list(found)
            raw[3] &= ~(termios.ICANON | termios.ECHO)
            termios.tcsetattr(self._keyboard, termios.TCSANOW, raw)
        self._write(_ENTER)
        self._lines.forget()

    def _give_back(self) -> None:
        """Restore the terminal, as far as it is still there."""
        with contextlib.suppress(OSError):
            self._write(_LEAVE)
        if self._keyboard is not None and self._before is not None:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSANOW, self._before)
            self._before = None

    def _write(self, text: str) -> None:
        data = memoryview(text.encode(self._terminal.stream.encoding or "ascii", "replace"))
        while data:
            data = data[os.write(self._output, data) :]
