"""Loop of a live screen, and of a watch whose output is no terminal."""

from __future__ import annotations

import select
import time

from appliance.status.document_changes import without_ages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final

    from appliance.cli.live.box_feed import BoxFeed
    from appliance.cli.live.full_screen import FullScreen
    from appliance.status.document import StatusDocument

    Draw = Callable[[], Sequence[str]]
    Press = Callable[[str], bool]
    Tell = Callable[[StatusDocument], None]

TICK_S: Final = 1.0
"""Pause after which ages are renewed."""
_OPERATION_TICK_S: Final = 0.25
"""The same while an operation runs: its phases have tenths of a second."""
_FRAME_S: Final = 0.1
"""Least pause between two frames that no key asked for."""
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


def run_appending(feed: BoxFeed, tell: Tell) -> int:
    """Tell each document that differs from the last one in more than ages, until Ctrl-C."""
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
            tell(document)
