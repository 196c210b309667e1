"""Verb `appliance top`: the box on a live screen."""

from __future__ import annotations

import contextlib
import sys
import time

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of
from appliance.cli.failures import CliError
from appliance.cli.live.box_feed import BoxFeed
from appliance.cli.live.box_sections import profile_names
from appliance.cli.live.full_screen import FullScreen
from appliance.cli.live.screen_loop import offline_document, run_screen, watch_status
from appliance.cli.live.top_controls import TopState, press
from appliance.cli.live.top_screen import Size, top_lines
from appliance.cli.terminal import Streams, Terminal
from appliance.wire.control import Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from appliance.cli.live.box_feed import LiveView


def run(arguments: Arguments, streams: Streams) -> int:
    """Show the box until q; with --json the documents, one a line, as `status --watch` does."""
    places = places_of(arguments)
    out = streams.out
    if arguments.json:
        return watch_status(
            places,
            out,
            lambda document, terminal: terminal.document(document, indent=None),
            names=(),
            json=True,
        )
    if not out.interactive or not sys.stdin.isatty():
        raise CliError("top needs a terminal: appliance status --watch", Exit.USAGE)
    with (
        contextlib.closing(BoxFeed(places, offline_document, details=True)) as feed,
        FullScreen(out, sys.stdin.fileno()) as screen,
    ):
        top = _Top(feed, screen, out)
        return run_screen(screen, feed, top.draw, top.press)


class _Top:
    """State of the screen between two keys."""

    def __init__(self, feed: BoxFeed, screen: FullScreen, terminal: Terminal) -> None:
        self._feed = feed
        self._screen = screen
        self._terminal = terminal
        self._state = TopState()
        self._frozen: tuple[LiveView, float, float] | None = None
        """View, wall clock and monotonic clock at which the screen was paused; None: it is not."""

    def draw(self) -> Sequence[str]:
        view, now, now_s = self._frozen or self._now()
        size = Size(*self._screen.size())
        return top_lines(view, self._state, self._terminal, size, now=now, now_s=now_s)

    def press(self, key: str) -> bool:
        """Do what a key asks for; return whether it is the end."""
        view = self._feed.view
        pressed = press(self._state, key, profile_names(view.document))
        self._state = pressed.state
        if not pressed.state.is_paused:
            self._frozen = None
        elif self._frozen is None:
            self._frozen = self._now()
        match pressed.action:
            case "quit":
                return True
            case "plan":
                self._feed.plan_switch(pressed.name)
            case "switch":
                self._feed.switch(pressed.name)
            case "log":
                from appliance.cli.verbs.logs import journal_command  # noqa: PLC0415 - for few screens

                wanted = Arguments(
                    names=[pressed.name], lines=None, since=None, follow=True, json=False
                )
                self._feed.show_log(journal_command(wanted))
            case "end-log":
                self._feed.stop_log()
            case "":
                pass
        return False

    def _now(self) -> tuple[LiveView, float, float]:
        return self._feed.view, time.time(), time.monotonic()
