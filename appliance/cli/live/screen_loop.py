"""Loop of a live screen, and the watch of `appliance status`, which also writes where no terminal is."""

from __future__ import annotations

import contextlib
import select
import sys
import time

from appliance.cli.box import row_of
from appliance.cli.live.box_feed import BoxFeed
from appliance.cli.live.full_screen import FullScreen
from appliance.cli.live.top_screen import Size, notice_of, status_lines
from appliance.status.document_changes import without_ages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final

    from appliance.cli.live.box_feed import BoxFeed
    from appliance.cli.live.full_screen import FullScreen
    from appliance.cli.paths import Places
    from appliance.cli.terminal import Terminal
    from appliance.model.errors import ApplianceError
    from appliance.model.status import StatusDocument

    Draw = Callable[[], Sequence[str]]
    Press = Callable[[str], bool]
    Write = Callable[[StatusDocument], None]
    Show = Callable[[StatusDocument, Terminal], None]


TICK_S: Final = 1.0
"""Pause after which ages are renewed."""
_OPERATION_TICK_S: Final = 0.25
"""The same while an operation runs: its phases have tenths of a second."""
_FRAME_S: Final = 0.1
"""Least pause between two frames that follow from no key."""
_SETTLE_S: Final = 0.3
"""Time for the health agent's first answer, which else would change the first document at once."""
_KILLED: Final = 128


def run_screen(screen: FullScreen, feed: BoxFeed, draw: Draw, press: Press) -> int:
    """Paint until a key or a signal ends it; return the exit status.

    Args:
        screen: The terminal.
        feed: What is shown.
        draw: Returns the lines of the screen.
        press: Does what a key asks for; returns whether that is the end.
    """
    painted_s, version, is_complete = float("-inf"), -1, False
    while not screen.ended_by:
        now_s = time.monotonic()
        pause_s = _OPERATION_TICK_S if feed.view.operation is not None else TICK_S
        is_new = feed.version != version or not is_complete
        if now_s - painted_s >= (_FRAME_S if is_new else pause_s):
            version, painted_s = feed.version, now_s
            is_complete = screen.paint(draw())
        next_s = painted_s + (pause_s if is_complete else _FRAME_S)
        wake = screen.wait(feed.descriptors(), min(next_s - time.monotonic(), feed.next_due_s()))
        feed.take(wake.ready)
        if any(press(key) for key in wake.keys):
            return 0
        if wake.keys or wake.is_changed:
            painted_s = float("-inf")
        elif feed.version != version and painted_s + _FRAME_S > time.monotonic():
            # Events come in bursts: one frame for all of them.
            select.select([], [], [], painted_s + _FRAME_S - time.monotonic())
    return _KILLED + screen.ended_by


def run_appending(feed: BoxFeed, write: Write) -> int:
    """Write each document that differs from the last one in more than ages, until Ctrl-C."""
    began_s, told = time.monotonic(), None
    while True:
        waits_s = min(feed.next_due_s(), TICK_S)
        descriptors = feed.descriptors()
        feed.take(select.select(descriptors, [], [], waits_s)[0])
        document = feed.view.document
        settled = feed.has_speeds or time.monotonic() - began_s > _SETTLE_S
        if document is None or not settled:
            continue
        content = without_ages(document)
        if content != told:
            told = content
            write(document)


def watch_status(
    places: Places, out: Terminal, show: Show, *, names: Sequence[str], json: bool
) -> int:
    """Show the status until q or Ctrl-C; return the exit status.

    Args:
        places: Paths of this box.
        out: Where it is shown.
        show: Writes one status.
        names: The only profiles; empty: all of them.
        json: Whether `show` writes JSON, a document a line.

    Raises:
        UnknownProfileError: there is no profile of one of `names`.
    """
    with contextlib.closing(BoxFeed(places, offline_document, details=False)) as feed:
        if json or not out.interactive:
            return run_appending(feed, lambda document: show(document, out))
        keyboard = sys.stdin.fileno() if sys.stdin.isatty() else None
        with FullScreen(out, keyboard) as screen:

            def draw() -> Sequence[str]:
                return _lines(feed, out, Size(*screen.size()), show, names)

            return run_screen(screen, feed, draw, lambda key: key == "q")


def offline_document(places: Places, reason: ApplianceError) -> StatusDocument:
    """Return the document without the supervisor, as `offline_status.status_without` does."""
    # Importing it takes half the time in which the first screen is there.
    from appliance.cli.offline_status import status_without  # noqa: PLC0415

    return status_without(places, reason)


def _lines(
    feed: BoxFeed, out: Terminal, size: Size, show: Show, names: Sequence[str]
) -> Sequence[str]:
    view = feed.view
    notice = notice_of(view, out, now_s=time.monotonic())
    document = view.document
    if document is None:
        return [notice or "asking the supervisor ..."]
    for name in names:
        row_of(document, name)
    return status_lines(lambda terminal: show(document, terminal), out, size, notice)
