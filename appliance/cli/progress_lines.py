"""Progress of an operation as lines, one for each event or phase.

On a terminal: one line a phase, the running one redrawn with a spinner. Elsewhere: one line
when a phase ends, so that a log stays readable.
"""

from __future__ import annotations

import time

from appliance.cli.terminal import Style, Terminal
from appliance.model.amounts import duration
from appliance.model.wording import joined, requester_name
from appliance.presentation.box_texts import PHASE_LABELS
from appliance.wire.control_events import AcceptedEvent, PhaseEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final

    Heading = Callable[[AcceptedEvent], str]

FRAME_S: Final = 0.1
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_SPINNER: Final = "|/-\\"
_LABEL_WIDTH: Final = 24
_TEXT_WIDTH: Final = 40
_ROOM_OF_OTHERS: Final = 37
"""Cells of a line that its text does not get: glyph, label, time, and the spaces between them."""
_NARROW: Final = 64
"""Width of a terminal below which the text of an ended phase has a line of its own."""
_GLYPHS: Final = {
    "done": ("✓", Style.GREEN),
    "failed": ("✗", Style.RED),
    "skipped": ("·", Style.DIM),
}
_CLEAR: Final = "\r\x1b[2K"
_CLEAR_BOTH: Final = "\r\x1b[J"
"""Erase this line and those below it (ED of ECMA-48)."""
_UP: Final = "\x1b[A"


class Progress:
    """Display of events while they come.

    This one shows none: for --json, where the events are the output, and for --no-wait.
    """

    def show(self, event: AcceptedEvent | PhaseEvent) -> None:
        """Show one event that is not the closing one."""

    def tick(self) -> None:
        """Redraw after some time without an event."""

    def end(self) -> None:
        """Restore the terminal's line and cursor."""


def heading(accepted: AcceptedEvent) -> str:
    """Return ``aeon → genesis   (usually 48 s; Ctrl-C detaches)``."""
    before, what = accepted.evicts, _what(accepted)
    if accepted.kind == "run":
        back = " (which come back when it ends)" if before[1:] else " (which comes back after it)"
        return what + (f" in place of {joined(before)}{back}" if before else "")
    usual_ms = accepted.usual_ms
    hints = [f"usually {duration(usual_ms / 1000)}"] if usual_ms else []
    joins = [f"already {_running(accepted)}, joined"] if accepted.joined else []
    return f"{what}   ({'; '.join([*joins, *hints, 'Ctrl-C detaches'])})"


def cancel_heading(accepted: AcceptedEvent) -> str:
    """Return ``cancelling aeon → genesis   (running for ana; Ctrl-C detaches)``."""
    return f"cancelling {_what(accepted)}   ({_running(accepted)}; Ctrl-C detaches)"


def _what(accepted: AcceptedEvent) -> str:
    """Return the operation: ``aeon → genesis``, ``restart genesis``."""
    if accepted.kind == "switch":
        return " → ".join(joined(names) for names in (accepted.evicts, accepted.target) if names)
    return f"{accepted.kind} {joined(accepted.target, nothing='')}".strip()


def _running(accepted: AcceptedEvent) -> str:
    by = f" for {requester_name(accepted.requested_by)}" if accepted.requested_by else ""
    return f"running{by}"


def phase_line(
    event: PhaseEvent,
    glyph: str,
    spent_s: float,
    *,
    label_width: int = _LABEL_WIDTH,
    text_width: int = _TEXT_WIDTH,
) -> str:
    """Return `` ✓ stopping aeon       SIGTERM, clean      1.8 s``, with columns of these widths."""
    label, text = _label(event), _text(event)
    return f" {glyph} {label:{label_width}} {text:{text_width}} {duration(spent_s):>8}"


def _label(event: PhaseEvent) -> str:
    label = PHASE_LABELS.get(event.phase, event.phase)
    return f"back: {label}" if event.rolling_back else label


def _text(event: PhaseEvent) -> str:
    if event.phase == "preflight" and event.state == "failed":
        return "refused"  # followed at once by the reasons, one on each line
    return event.text.partition("\n")[0]


class LineProgress(Progress):
    """Progress for logs and pipes: a line when a phase has ended."""

    def __init__(self, terminal: Terminal, heading: Heading = heading) -> None:
        self._terminal = terminal
        self._heading = heading

    def show(self, event: AcceptedEvent | PhaseEvent) -> None:
        """Print the heading and every ended phase."""
        if isinstance(event, AcceptedEvent):
            self._terminal.line(self._heading(event))
        elif event.state in _GLYPHS:
            for line in _ended(event, self._terminal):
                self._terminal.line(line)


class LiveProgress(Progress):
    """Progress for a terminal: the running phase is redrawn until it ends."""

    def __init__(self, terminal: Terminal, heading: Heading = heading) -> None:
        self._terminal = terminal
        self._heading = heading
        self._running: PhaseEvent | None = None
        self._since_s = 0.0
        self._frame = 0
        self._ends_s: float | None = None
        """Time at which the operation usually ends; None: not known."""
        self._log = ""
        self._clear = _CLEAR
        """Sequence that erases what is drawn."""

    def show(self, event: AcceptedEvent | PhaseEvent) -> None:
        """Redraw the running phase, or leave its last line standing."""
        if isinstance(event, AcceptedEvent):
            self._terminal.line(self._heading(event))
            if event.usual_ms and not event.joined:
                self._ends_s = time.monotonic() + event.usual_ms / 1000
        elif event.state in _GLYPHS:
            self._wipe()
            self._running, self._log = None, ""
            if event.rolling_back or event.state == "failed":
                self._ends_s = None  # the usual time is that of success
            for line in _ended(event, self._terminal):
                self._terminal.line(line)
        else:
            self._follow(event)

    def tick(self) -> None:
        """Turn the spinner."""
        if self._running is not None:
            self._frame += 1
            self._draw(self._running)

    def end(self) -> None:
        """Clear a half-drawn line."""
        if self._running is not None:
            self._wipe()
            self._running = None

    def _follow(self, event: PhaseEvent) -> None:
        self._since_s = time.monotonic() - event.ms / 1000
        self._running = event
        self._log = event.log or self._log
        self._draw(event)

    def _draw(self, event: PhaseEvent) -> None:
        from appliance.cli.cells import cut, printable  # noqa: PLC0415 - see _ended

        mark = self._terminal.shown("…")
        frames = _SPINNER if self._terminal.unicode else _ASCII_SPINNER
        frame = frames[self._frame % len(frames)]
        now_s = time.monotonic()
        spent_s = now_s - self._since_s
        # Lines that wrap cannot be redrawn.
        room = self._terminal.width() - 1
        if room < _NARROW:
            line = f" {frame} {_label(event)}  {duration(spent_s)}  {_text(event)}"
        else:
            text_width = min(_TEXT_WIDTH, room - _ROOM_OF_OTHERS)
            text = cut(self._terminal.shown(_text(event)), text_width, mark)
            line = phase_line(event.replaced(text=text), frame, spent_s, text_width=text_width)
        line = cut(self._terminal.shown(f"{line}{self._left(now_s)}"), room, mark)
        log = (
            cut(self._terminal.shown(f"   {printable(self._log)}"), room, mark) if self._log else ""
        )
        clear, self._clear = self._clear, _CLEAR_BOTH if log else _CLEAR
        text, after = (f"{line}\n{log}", _UP) if log else (line, "")
        self._terminal.draw(clear, text, after)

    def _left(self, now_s: float) -> str:
        left_s = 0.0 if self._ends_s is None else self._ends_s - now_s
        return f"  ~{duration(left_s)} left" if left_s >= 1 else ""

    def _wipe(self) -> None:
        if self._running is not None:
            self._terminal.draw(self._clear)
            self._clear = _CLEAR


def progress_for(terminal: Terminal, *, silent: bool, heading: Heading = heading) -> Progress:
    """Return the progress display for `terminal`.

    Args:
        terminal: Where it is displayed.
        silent: Whether to return one that shows nothing.
        heading: First line of a display.
    """
    if silent:
        return Progress()
    kind = LiveProgress if terminal.interactive else LineProgress
    return kind(terminal, heading)


def _ended(event: PhaseEvent, terminal: Terminal) -> Sequence[str]:
    """Return the line of an ended phase; its text is on a second one where the terminal is too narrow."""
    glyph, style = _GLYPHS[event.state]
    painted, spent_s = terminal.paint(glyph, style), event.ms / 1000
    if not terminal.interactive:
        return [phase_line(event, painted, spent_s)]
    from appliance.cli.cells import padded, width  # noqa: PLC0415 - not for pipes, whose lines have any width

    columns, text = terminal.width(), _text(event)
    room = min(_TEXT_WIDTH, columns - _ROOM_OF_OTHERS)
    if columns >= _NARROW and width(terminal.shown(text)) <= room:
        return [phase_line(event, painted, spent_s, text_width=room)]
    took = f"{duration(spent_s):>8}"
    label_width = min(columns, _ROOM_OF_OTHERS + _TEXT_WIDTH) - len(took) - 4
    label = padded(_label(event), max(label_width, 1))
    return [f" {painted} {label} {took}", *([f"   {text}"] if text else [])]
