"""The watchdog's loop: look at the box, judge it, keep what changed, have it sent.

=======  ========================================================================================
Look     at the box, every 10 s and soon after a change of the supervisor's status; bounded in time
Judge    the rules find what is wrong, and the alert book what leads to messages (alerts)
Keep     states, transitions and outbox rows, in one transaction of the store
Send     the sender is woken; it does the rest
Feed     systemd's watchdog, after a whole turn: a loop that hangs, or whose every look fails, ends
         with the process, which systemd starts again or gives up with a message
=======  ========================================================================================

This loop is the one writer of the alert book: what operators change goes through it, between two looks. So do the
silences of live profiles that somebody stops, which follow from the supervisor's status documents (`StopWatch`).
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Final, Protocol

from appliance.alerts.book import AlertBook, AlertPolicy, Evaluation, Instant
from appliance.alerts.evaluation import evaluate
from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.rules import findings
from appliance.alerts.silences import (
    StopByRequest,
    silence_stopped,
    started,
    unsilence_started,
)
from appliance.alerts.snapshot import BoxLook
from appliance.alerts.watchdog_memory import WatchdogMemory
from appliance.health.clock import HealthClock
from appliance.model.alerts import Severity, Transition
from appliance.model.errors import ApplianceError
from appliance.model.json_reader import decode_json
from appliance.model.operations import Kind, Outcome
from appliance.model.status import StatusDocument
from appliance.model.targets import TargetStanding
from appliance.model.words import Mark
from appliance.status.journal_fields import transition_fields
from appliance.wire.typed_json import from_json

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 10.0
"""Pause between the begins of two looks, by which the counts of the rules are set."""
_SOONEST_S: Final = 2.0
"""Pause before a look that a change of the status asks for."""
FRESH_S: Final = 3 * LOOK_EVERY_S
"""Age of the last turn up to which the loop counts as alive."""


class AlertLedger(Protocol):
    """Store of the alert book, as far as the loop uses it."""

    async def book(self) -> AlertBook:
        """Return the book as it was committed last."""

    async def memory(self) -> str | None:
        """Return the rules' memory of earlier looks; None: none was kept."""

    async def commit(
        self,
        evaluation: Evaluation,
        *,
        targets: Sequence[str],
        memory: str | None = None,
        min_severity: Mapping[str, Severity] = ...,
        now_unix_s: float,
    ) -> Sequence[Transition]:
        """Keep an evaluation in one transaction; returns its transitions with their numbers."""


class Watchdog:
    """The loop.

    Args:
        look: Function that looks at the box; bounded in time.
        circumstances: Function that returns what decides who is told, at a look.
        store: Of the alert book.
        targets: Function that returns those who are told; empty: nobody is.
        policy: Settings of the alert book.
        on_commit: Called with the transitions of a commit, which may have made outbox rows.
        on_turn: Called after each whole turn.
        clock: Of the box.
    """

    def __init__(
        self,
        *,
        look: Callable[[], Awaitable[BoxLook]],
        circumstances: Callable[[BoxLook], AlertCircumstances],
        store: AlertLedger,
        targets: Callable[[], Sequence[TargetStanding]],
        policy: AlertPolicy,
        on_commit: Callable[[Sequence[Transition]], None],
        on_turn: Callable[[], None],
        clock: HealthClock,
    ) -> None:
        self._look = look
        self._circumstances = circumstances
        self._store = store
        self._targets = targets
        self._policy = policy
        self._on_commit = on_commit
        self._on_turn = on_turn
        self._clock = clock
        self._writing = asyncio.Lock()
        self._news = asyncio.Event()
        self._memory = WatchdogMemory()
        self._turned_s: float | None = None
        self._read = asyncio.Event()
        """Set once the stored book is read, before which it must not change."""
        self.book = AlertBook()
        """The book as it was evaluated last; for readers."""

    def is_fresh(self) -> bool:
        """Tell whether the last whole turn is of the last 30 s."""
        turned_s = self._turned_s
        return turned_s is not None and self._clock.monotonic_s() - turned_s < FRESH_S

    def look_soon(self) -> None:
        """Have the box looked at before the next regular look: something may have changed."""
        self._news.set()

    async def read(self) -> None:
        """Read the stored book and memory."""
        self.book = await self._store.book()
        self._memory = _memory_in(await self._store.memory())
        self._read.set()

    async def known_book(self) -> AlertBook:
        """Return the book, once the stored one is read."""
        await self._read.wait()
        return self.book

    async def run(self) -> None:
        """Watch for ever."""
        await self.read()
        while True:
            due_s = self._clock.monotonic_s() + LOOK_EVERY_S
            await self._turn()
            await self._until(due_s)

    async def change(
        self,
        act: Callable[[AlertBook, Instant], Evaluation],
        *,
        only: Collection[str] | None = None,
    ) -> Sequence[Transition]:
        """Change the book between two looks; returns the transitions. Raises what `act` raises.

        Args:
            act: Function that changes the book, such as an ack, with its other arguments bound.
            only: Targets that are told; None: all.
        """
        await self._read.wait()
        async with self._writing:
            return await self._commit(act(self.book, self._now()), only=only)

    async def _until(self, due_s: float) -> None:
        """Wait for the next regular look; news have a look of their own before that."""
        while await self._clock.wait(self._news, due_s):
            soon_s = self._clock.monotonic_s() + _SOONEST_S
            await self._clock.sleep_until(min(soon_s, due_s))
            self._news.clear()
            if soon_s >= due_s:
                return
            await self._turn()

    async def _turn(self) -> None:
        """Look, judge, keep. What one look raises is logged, and systemd's watchdog is not fed."""
        try:
            look = await self._look()
            async with self._writing:
                found, memory = findings(look, self._memory)
                evaluation = evaluate(
                    self.book, found, self._circumstances(look), self._policy, self._now()
                )
                self._memory = memory
                await self._commit(evaluation, json.dumps(asdict(memory)))
        except Exception:  # noqa: BLE001 - the outer loop of a service
            _log.exception("a look at the box failed")
            return
        self._turned_s = self._clock.monotonic_s()
        self._on_turn()

    async def _commit(
        self,
        evaluation: Evaluation,
        memory: str | None = None,
        *,
        only: Collection[str] | None = None,
    ) -> Sequence[Transition]:
        """Keep an evaluation.

        Where the store fails, looks are counted all the same, but a book with changes to be told is not
        taken over: the next look makes them again.
        """
        if not evaluation.transitions and not evaluation.cancelled:
            self.book = evaluation.book
        targets = [one for one in self._targets() if only is None or one.name in only]
        kept = await self._store.commit(
            evaluation,
            targets=[target.name for target in targets],
            memory=memory,
            min_severity={
                target.name: Severity(target.min_severity)
                for target in targets
                if target.min_severity in set(Severity)
            },
            now_unix_s=self._clock.unix_s(),
        )
        self.book = evaluation.book
        if kept or evaluation.cancelled or evaluation.postponed:
            for one in kept:
                fields = transition_fields(one)
                text = one.subject.text
                _log.info("%s %s: %s %s", one.alert, text, one.rule, one.kind, extra=fields)
            self._on_commit(kept)
        return kept

    def _now(self) -> Instant:
        return Instant(
            unix_s=self._clock.unix_s(),
            monotonic_s=self._clock.monotonic_s(),
            boot_s=self._clock.boot_s(),
            boot_id=self._clock.boot_id,
        )


def _memory_in(text: str | None) -> WatchdogMemory:
    """Return the kept memory; an empty one where there is none, or none that can be read."""
    try:
        return WatchdogMemory() if text is None else from_json(WatchdogMemory, decode_json(text))
    except ValueError as error:
        _log.warning("the memory of earlier looks cannot be read: %s", error)
        return WatchdogMemory()


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
                await self._watchdog.change(lambda book, now: unsilence_started(book, running, now))
            stop = _stop_in(document, running)
            if stop is not None and stop.operation != self._operation:
                if self._operation or not _was_seen(stop, book):
                    await self._watchdog.change(lambda book, now: silence_stopped(book, stop, now))
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
