"""Operators' actions on the book besides silences: acknowledging an alert, planning windows."""

import re
from dataclasses import replace
from typing import Final

from appliance.alerts.book.alert_context import Evaluation, Instant
from appliance.alerts.book.alert_round import transition_of
from appliance.alerts.book.alert_state import (
    MOST_CHARACTERS,
    MOST_WINDOWS,
    AlertBook,
    AlertState,
    PlannedWindow,
)
from appliance.alerts.book.local_hours import DAYS
from appliance.alerts.book.silences import MOST_BY_CHARACTERS
from appliance.model.alerts import BOX, AlertRule, Notice, TransitionKind
from appliance.model.errors import BadRequestError, NotFoundError
from appliance.model.wording import printable, short

LONGEST_WINDOW_MIN: Final = 720
_MOST_SUBJECTS: Final = 64
_MOST_NAME: Final = 64
_TIME: Final = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")


def ack(book: AlertBook, alert: str, by: str, now: Instant) -> Evaluation:
    """Acknowledge an alert, which ends its reminders until it is over or grows worse.

    Raises:
        NotFoundError: No such alert fires.
    """
    state = next((each for each in book.states.values() if each.alert == alert), None)
    if state is None or not state.is_open:
        raise NotFoundError(f'no alert "{short(alert)}" fires: appliance alerts')
    if state.acked_unix_s is not None:
        return Evaluation(book=book)
    acked = replace(state, acked_by=printable(by)[:MOST_BY_CHARACTERS], acked_unix_s=now.unix_s)
    return Evaluation(
        book=replace(book, states={**book.states, state.key: acked}),
        transitions=(
            transition_of(TransitionKind.ACKED, acked, unix_s=now.unix_s, by=acked.acked_by),
        ),
    )


def fire_test(book: AlertBook, by: str, now: Instant) -> Evaluation:
    """Tell targets of an alert that an operator has asked for; it is not kept, so it is over at once."""
    number = book.next_alert
    state = AlertState(
        subject=BOX,
        rule=AlertRule.TEST,
        episode=number,
        alert=f"A{number}",
        fact="test, asked for by an operator",
        since_unix_s=now.unix_s,
    )
    transition = transition_of(
        TransitionKind.FIRED,
        state,
        unix_s=now.unix_s,
        by=printable(by)[:MOST_BY_CHARACTERS],
        delivered=True,
    )
    return Evaluation(
        book=replace(book, next_alert=number + 1),
        transitions=(transition,),
        notices=(Notice(transition=transition),),
    )


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
    window = replace(window, reason=printable(window.reason)[:MOST_CHARACTERS])
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
