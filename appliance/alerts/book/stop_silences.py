"""Silences of live profiles that somebody stops: for a while they are down on purpose.

===============================================  ================================================
a stop of a live profile has ended               it is silenced for 2 h from then, unless it
                                                 already is for longer
it runs again, whoever started it                the silence ends; one that an operator made does
                                                 not
an operator ends the silence, or its time does   it is not made again for the same stop
===============================================  ================================================
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.alerts.book.alert_book import (
    AlertBook,
    Evaluation,
    Instant,
    silence,
    unsilence,
)
from appliance.alerts.book.silences import SILENCE_S
from appliance.model.alerts import Subject, SubjectKind, Transition

_BY: Final = "a stop"
_REASON: Final = "stopped on purpose"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopByRequest:
    """Stop of live profiles that somebody asked for, and that was done."""

    operation: int
    """Number of the operation."""
    profiles: tuple[str, ...]
    """Profiles of the stop that are marked live."""
    ended_unix_s: float


def silence_stopped(book: AlertBook, stop: StopByRequest, now: Instant) -> Evaluation:
    """Silence the profiles of a stop, for what is left of 2 h since then."""
    until_unix_s = stop.ended_unix_s + SILENCE_S
    left_s = min(until_unix_s - now.unix_s, SILENCE_S)
    changes: list[Transition] = []
    for name in stop.profiles if left_s >= 1 else ():
        subject = Subject(kind=SubjectKind.PROFILE, name=name)
        mine = [each for each in book.silences if each.subject == subject]
        if any(each.until_unix_s >= until_unix_s for each in mine):
            continue
        done = silence(book, subject, left_s, _BY, _REASON, now)
        changes += done.transitions
        silences = tuple(
            replace(each, ends_at_start=True) if each.subject == subject else each
            for each in done.book.silences
        )
        book = replace(done.book, silences=silences)
    return Evaluation(book=book, transitions=tuple(changes))


def unsilence_started(book: AlertBook, running: Collection[str], now: Instant) -> Evaluation:
    """End the silences of stops whose profiles run again."""
    changes: list[Transition] = []
    for subject in started(book, running):
        done = unsilence(book, subject, "a start", now)
        book = done.book
        changes += done.transitions
    return Evaluation(book=book, transitions=tuple(changes))


def started(book: AlertBook, running: Collection[str]) -> Sequence[Subject]:
    """Return the profiles that run, and whose silence ends by that."""
    return [
        each.subject
        for each in book.silences
        if each.ends_at_start and each.subject.name in running
    ]
