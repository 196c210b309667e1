"""Silences of subjects: begun and ended by operators, and by time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from appliance.alerts.book.alert_context import Evaluation, Instant
from appliance.alerts.book.alert_round import AlertRound, transition_of
from appliance.alerts.book.alert_state import (
    MOST_CHARACTERS,
    MOST_SILENCES,
    AlertBook,
    BookClock,
    Silence,
)
from appliance.model.alerts import Subject, Transition, TransitionKind
from appliance.model.errors import BadRequestError
from appliance.model.wording import printable

SILENCE_S: Final = 7200.0
"""Length of a silence for which none is given."""
LONGEST_SILENCE_S: Final = 7 * 86400.0
MOST_BY_CHARACTERS: Final = 64


def silence(  # noqa: PLR0917 - an operator's action, as ack
    book: AlertBook, subject: Subject, for_s: float, by: str, reason: str, now: Instant
) -> Evaluation:
    """Silence a subject from now on, in place of the silence that it may have.

    Raises:
        BadRequestError: The length is not between 1 s and 7 days, or too many silences are in force.
    """
    if not 1 <= for_s <= LONGEST_SILENCE_S:
        raise BadRequestError("a silence lasts between 1 s and 7 days")
    others = tuple(each for each in book.silences if each.subject != subject)
    if len(others) >= MOST_SILENCES:
        raise BadRequestError(
            f"{MOST_SILENCES} silences are in force: appliance alerts unsilence NAME"
        )
    new = Silence(
        id=book.next_silence,
        subject=subject,
        until_unix_s=now.unix_s + for_s,
        by=printable(by)[:MOST_BY_CHARACTERS],
        reason=printable(reason)[:MOST_CHARACTERS],
        begun_unix_s=now.unix_s,
    )
    return Evaluation(
        book=replace(book, silences=(*others, new), next_silence=book.next_silence + 1),
        transitions=_recorded(
            book, TransitionKind.SILENCED, [new], now, by=new.by, reason=new.reason
        ),
    )


def unsilence(book: AlertBook, subject: Subject, by: str, now: Instant) -> Evaluation:
    """End the silence of a subject.

    Raises:
        BadRequestError: The subject is not silenced.
    """
    ended = [each for each in book.silences if each.subject == subject]
    if not ended:
        raise BadRequestError(f"{subject.text} is not silenced")
    others = tuple(each for each in book.silences if each.subject != subject)
    return Evaluation(
        book=replace(book, silences=others),
        transitions=_recorded(
            book,
            TransitionKind.UNSILENCED,
            ended,
            now,
            by=printable(by)[:MOST_BY_CHARACTERS],
        ),
    )


def end_silences(current: AlertRound) -> None:
    """Take out the silences whose time is over.

    One that lasts longer than the longest, because the clock was set back, is cut to that.
    """
    now_unix_s = current.clock.unix_s
    latest_unix_s = now_unix_s + LONGEST_SILENCE_S
    book = current.book
    kept = tuple(
        replace(each, until_unix_s=min(each.until_unix_s, latest_unix_s))
        for each in book.silences
        if each.until_unix_s > now_unix_s
    )
    if kept == book.silences:
        return
    ended = [each for each in book.silences if each.until_unix_s <= now_unix_s]
    current.transitions.extend(
        _recorded(book, TransitionKind.UNSILENCED, ended, current.clock, reason="its time is over")
    )
    current.book = replace(book, silences=kept)


def silence_phrases(silences: Iterable[Silence]) -> Mapping[Subject, str]:
    """Return why targets are not told of a subject, for each that is silenced."""
    return {
        each.subject: f"silenced: {each.reason}" if each.reason else "silenced" for each in silences
    }


def _recorded(
    book: AlertBook,
    kind: TransitionKind,
    silences: Sequence[Silence],
    now: Instant | BookClock,
    *,
    by: str = "",
    reason: str = "",
) -> tuple[Transition, ...]:
    """Return the records of silences that began or ended, one for each alert that they are about."""
    subjects = {each.subject for each in silences}
    return tuple(
        transition_of(kind, state, unix_s=now.unix_s, by=by, reason=reason)
        for state in book.states.values()
        if state.is_open and state.subject in subjects
    )
