"""Watch over stops of live profiles, as the supervisor's status documents tell them."""

import logging
from functools import partial
from typing import Final

from appliance.alerts.book import AlertBook, Evaluation, Instant
from appliance.alerts.silences import (
    StopByRequest,
    silence_stopped,
    started,
    unsilence_started,
)
from appliance.health.watching.watchdog_loop import Watchdog
from appliance.model.errors import ApplianceError
from appliance.model.operations import Kind, Outcome
from appliance.model.status import StatusDocument
from appliance.model.words import Mark

_log = logging.getLogger(__name__)

_RUNNING: Final = frozenset({"serving", "loading", "restarting"})
_SEEN_AFTER_S: Final = 60.0
"""Time in which a stop is seen: documents come every 20 s at least."""


class StopWatch:
    """Watch that silences live profiles which were stopped, until they run again.

    Args:
        watchdog: Writes the alert book.
    """

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        self._operation = 0
        """Number of the last stop that was taken in."""

    async def take(self, document: StatusDocument) -> None:
        """Take in one document. What cannot be kept is logged, and tried with the next one."""
        try:
            running = {row.name for row in document.profiles if row.state in _RUNNING}
            book = await self._watchdog.known_book()
            if started(book, running):
                await self._watchdog.change(partial(_ended, running))
            stop = _stop_in(document, running)
            if stop is not None and stop.operation != self._operation:
                if self._operation or not _was_seen(stop, book):
                    await self._watchdog.change(partial(_begun, stop))
                self._operation = stop.operation
        except ApplianceError as error:
            _log.warning("a stop is not silenced: %s", error)


def _stop_in(document: StatusDocument, running: set[str]) -> StopByRequest | None:
    """Return the stop that has ended last; None: another operation has, or it stopped no live profile."""
    last = document.last_operation
    if last is None or last.kind != Kind.STOP or last.outcome != Outcome.DONE:
        return None
    live = {row.name for row in document.profiles if row.mark == Mark.LIVE}
    names = tuple(name for name in last.profiles if name in live - running)
    return StopByRequest(operation=last.id, profiles=names, ended_unix_s=last.finished_unix_s)


def _was_seen(stop: StopByRequest, book: AlertBook) -> bool:
    """Tell whether the agent before this one has seen a stop: an operator may have ended its silence."""
    return book.clock is not None and book.clock.unix_s > stop.ended_unix_s + _SEEN_AFTER_S


def _begun(stop: StopByRequest, book: AlertBook, now: Instant) -> Evaluation:
    return silence_stopped(book, stop, now)


def _ended(running: set[str], book: AlertBook, now: Instant) -> Evaluation:
    return unsilence_started(book, running, now)
