"""Spans in which no messages are sent: silences, planned windows and quiet hours.

A live profile that somebody stops is silenced, since it is down on purpose:

===============================================  ================================================
a stop of a live profile has ended               it is silenced for 2 h from then, unless it
                                                 already is for longer
it runs again, whoever started it                the silence ends; one that an operator made does
                                                 not
an operator ends the silence, or its time does   it is not made again for the same stop
===============================================  ================================================

Windows and quiet hours are spans of local time, also over days on which the clock is changed. A time that the clock skips counts from the moment of the change, one that it shows twice from the
first to the last. A window lasts its minutes, and until the clock shows its end: it is at most an hour
longer on two days of the year, and never shorter. Quiet hours end when the clock shows their end.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from appliance.alerts.book import (
    MOST_CHARACTERS,
    MOST_SILENCES,
    MOST_WINDOWS,
    AlertBook,
    AlertPolicy,
    BookClock,
    Evaluation,
    Instant,
    Silence,
)
from appliance.alerts.round import AlertRound, transition_of
from appliance.model.alerts import (
    Subject,
    SubjectKind,
    Transition,
    TransitionKind,
)
from appliance.model.errors import BadRequestError, NotFoundError
from appliance.model.wording import printable, short
from appliance.wire.alert_requests import PlannedWindow

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
    book = current.result.book
    kept = tuple(
        replace(each, until_unix_s=min(each.until_unix_s, latest_unix_s))
        for each in book.silences
        if each.until_unix_s > now_unix_s
    )
    if kept == book.silences:
        return
    ended = [each for each in book.silences if each.until_unix_s <= now_unix_s]
    current.result.transitions.extend(
        _recorded(book, TransitionKind.UNSILENCED, ended, current.clock, reason="its time is over")
    )
    current.result.book = replace(book, silences=kept)


def silence_phrases(silences: Iterable[Silence]) -> Mapping[Subject, str]:
    """Return the phrase about the silence of each subject that has one."""
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
) -> list[Transition]:
    """Return the records of silences that began or ended, one for each alert that they are about."""
    subjects = {each.subject for each in silences}
    return [
        transition_of(kind, state, unix_s=now.unix_s, by=by, reason=reason)
        for state in book.states.values()
        if state.is_open and state.subject in subjects
    ]


_BY: Final = "a stop"
_REASON: Final = "stopped on purpose"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopByRequest:
    """Stop of live profiles by request, which has been carried out."""

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
    return Evaluation(book=book, transitions=changes)


def unsilence_started(book: AlertBook, running: Collection[str], now: Instant) -> Evaluation:
    """End the silences of stops whose profiles run again."""
    changes: list[Transition] = []
    for subject in started(book, running):
        done = unsilence(book, subject, "a start", now)
        book = done.book
        changes += done.transitions
    return Evaluation(book=book, transitions=changes)


def started(book: AlertBook, running: Collection[str]) -> Sequence[Subject]:
    """Return the profiles that run, and whose silence ends by that."""
    return [
        each.subject
        for each in book.silences
        if each.ends_at_start and each.subject.name in running
    ]


DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = timedelta(days=1)
_MOST_ZONES: Final = 8


def quiet_until(policy: AlertPolicy, unix_s: float) -> float | None:
    """Return the end of the quiet hours that a moment lies in; None: it lies in none."""
    if policy.quiet_from is None or policy.quiet_to is None:
        return None
    zone = _zone(policy.time_zone)
    begin, end = time.fromisoformat(policy.quiet_from), time.fromisoformat(policy.quiet_to)
    for day in _days_around(unix_s, zone):
        last_day = day if begin < end else day + _DAY
        end_s = _last(datetime.combine(last_day, end), zone)
        if _first(datetime.combine(day, begin), zone) <= unix_s < end_s:
            return end_s
    return None


def windows_at(
    windows: Sequence[PlannedWindow], policy: AlertPolicy, unix_s: float
) -> Sequence[PlannedWindow]:
    """Return the windows that a moment lies in."""
    if not windows:
        return ()
    zone = _zone(policy.time_zone)
    days = _days_around(unix_s, zone)
    return [
        window
        for window in windows
        if any(
            begin_s <= unix_s < end_s
            for day in days
            if not window.days or DAYS[day.weekday()] in window.days
            for begin_s, end_s in [_span(window, day, zone)]
        )
    ]


def _span(window: PlannedWindow, day: date, zone: tzinfo | None) -> tuple[float, float]:
    """Return the Unix times between which a window of a day lies."""
    begin = datetime.combine(day, time.fromisoformat(window.begin))
    length = timedelta(minutes=window.minutes)
    end_s = max(_last(begin + length, zone), _unix(begin, zone) + length.total_seconds())
    return _first(begin, zone), end_s


def _days_around(unix_s: float, zone: tzinfo | None) -> Sequence[date]:
    """Return the days on which a span may have begun that a moment lies in."""
    today = datetime.fromtimestamp(unix_s, zone).date()
    return today - _DAY, today


def _first(local: datetime, zone: tzinfo | None) -> float:
    """Return the first moment at which the clock shows a time, or has skipped it."""
    early_s, late_s = _unix(local, zone), _unix(local.replace(fold=1), zone)
    if early_s <= late_s:
        return early_s
    return _change_between(late_s, early_s, zone)


def _last(local: datetime, zone: tzinfo | None) -> float:
    """Return the last moment at which the clock shows a time, or that of the change if it skips it."""
    early_s, late_s = _unix(local, zone), _unix(local.replace(fold=1), zone)
    if early_s <= late_s:
        return late_s
    return _change_between(late_s, early_s, zone)


def _change_between(before_s: float, after_s: float, zone: tzinfo | None) -> float:
    """Return the moment at which the clock is changed, to the second."""
    offset = _offset(before_s, zone)
    while after_s - before_s > 1:
        middle_s = (before_s + after_s) // 2
        if _offset(middle_s, zone) == offset:
            before_s = middle_s
        else:
            after_s = middle_s
    return after_s


def _offset(unix_s: float, zone: tzinfo | None) -> timedelta | None:
    return datetime.fromtimestamp(unix_s, zone).astimezone(zone).utcoffset()


def _unix(local: datetime, zone: tzinfo | None) -> float:
    """Return the Unix time of a local one; without a zone the local time is that of the box."""
    return local.replace(tzinfo=zone).timestamp()


@lru_cache(_MOST_ZONES)
def _zone(name: str) -> tzinfo | None:
    """Return the zone of a name; None: the box's, also where the box does not know the name."""
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, OSError, ValueError):
        return None


LONGEST_WINDOW_MIN: Final = 720
_MOST_SUBJECTS: Final = 64
_MOST_NAME: Final = 64
_TIME: Final = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")


def add_window(book: AlertBook, window: PlannedWindow) -> Evaluation:
    """Add a planned window, in place of the one of the same name.

    Raises:
        BadRequestError: The window cannot be, or there are too many.
    """
    if not window.name or len(window.name) > _MOST_NAME or not window.name.isprintable():
        raise BadRequestError(f"a window has a name of at most {_MOST_NAME} characters")
    if _TIME.fullmatch(window.begin) is None:
        raise BadRequestError(f'"{short(window.begin)}" is not a time of day such as 02:30')
    if not 1 <= window.minutes <= LONGEST_WINDOW_MIN:
        raise BadRequestError("a window lasts between 1 minute and 12 hours")
    if wrong := [day for day in window.days if day not in DAYS]:
        raise BadRequestError(f'"{short(wrong[0])}" is not a day: {", ".join(DAYS)}')
    if len(window.subjects) > _MOST_SUBJECTS:
        raise BadRequestError(f"a window is about at most {_MOST_SUBJECTS} subjects, or everything")
    others = tuple(each for each in book.windows if each.name != window.name)
    if len(others) >= MOST_WINDOWS:
        raise BadRequestError(f"there are {MOST_WINDOWS} windows: appliance window rm NAME")
    window = window.replaced(reason=printable(window.reason)[:MOST_CHARACTERS])
    return Evaluation(book=replace(book, windows=(*others, window)))


def remove_window(book: AlertBook, name: str) -> Evaluation:
    """Remove a planned window.

    Raises:
        NotFoundError: There is none of this name.
    """
    others = tuple(each for each in book.windows if each.name != name)
    if len(others) == len(book.windows):
        raise NotFoundError(f'no window "{short(name)}": appliance window ls')
    return Evaluation(book=replace(book, windows=others))
