"""Watch of `appliance status`: painted anew after each change, or one status after the other."""

from __future__ import annotations

import contextlib
import sys
import time

from appliance.cli.box import row_of
from appliance.cli.live.box_feed import BoxFeed
from appliance.cli.live.full_screen import FullScreen
from appliance.cli.live.screen_loop import run_appending, run_screen
from appliance.cli.live.top_screen import Size, notice_of, status_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from appliance.cli.paths import Places
    from appliance.cli.terminal import Terminal
    from appliance.model.errors import ApplianceError
    from appliance.status.document import StatusDocument

    Show = Callable[[StatusDocument, Terminal], None]


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
