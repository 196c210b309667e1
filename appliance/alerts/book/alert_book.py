"""Alert state machine: the book of all alerts, and what becomes of it at each look and each action.

| Phase | Event | Next phase | Recorded | Targets |
| --- | --- | --- | --- | --- |
| ok, pending | bad often or long enough | firing, of a new episode | fired | told, unless a gate holds it |
| firing | its gate opens, and they were not told | firing | fired | told |
| firing | more severe | firing | changed | told, also if acked; the ack ends |
| firing, critical | 1 h, 4 h, 12 h after the message, each 12 h | firing | reminded | told, unless acked |
| firing | good often and long enough | ok; an ack ends | resolved | told, if they were told of the fire |
| any | 4 firings and recoveries in 30 min | flapping besides | flapping | told once |
| flapping | 30 min without a change | not flapping | resolved, if it is ok | told, as above |
| any | what it is about is gone: its profile is stopped, the box was started anew | ok | resolved | told, as above |
| any | subject is retired or removed | ok | cancelled, if it fired | never; unsent messages go |

The rules' terms are in `alert_rules`, the counting of looks in `look_counting`, the gates in `delivery`.
"""

from collections.abc import Sequence

from appliance.alerts.book.alert_actions import ack, add_window, fire_test, remove_window
from appliance.alerts.book.alert_context import (
    AlertCircumstances,
    AlertPolicy,
    Evaluation,
    Instant,
)
from appliance.alerts.book.alert_round import AlertRound
from appliance.alerts.book.alert_state import (
    AlertBook,
    AlertKey,
    AlertState,
    BookClock,
    DeliveryGate,
    PlannedWindow,
    Silence,
)
from appliance.alerts.book.alert_tables import STANDARD_TABLES, AlertTables
from appliance.alerts.book.book_clock import advance
from appliance.alerts.book.delivery import deliver
from appliance.alerts.book.episodes import (
    cancel_ended_subjects,
    count_looks,
    end_with_boot,
)
from appliance.alerts.book.look_counting import forget_looks
from appliance.alerts.book.silences import end_silences, silence, unsilence
from appliance.model.alerts import Finding

__all__ = [
    "AlertBook",
    "AlertCircumstances",
    "AlertKey",
    "AlertPolicy",
    "AlertState",
    "BookClock",
    "DeliveryGate",
    "Evaluation",
    "Instant",
    "PlannedWindow",
    "Silence",
    "ack",
    "add_window",
    "evaluate",
    "fire_test",
    "remove_window",
    "silence",
    "unsilence",
]


def evaluate(
    book: AlertBook,
    findings: Sequence[Finding],
    circumstances: AlertCircumstances,
    policy: AlertPolicy,
    now: Instant,
    *,
    tables: AlertTables = STANDARD_TABLES,
) -> Evaluation:
    """Return the book after a look, with the changes to record and the messages to queue.

    Takes time in proportion to the findings and the states. A subject and rule without a finding is
    as one whose finding is unknown.
    """
    step = advance(book.clock, now, tables.grace_s)
    states = dict(book.states)
    if step.has_gap:
        states = {key: forget_looks(state) for key, state in states.items()}
    current = AlertRound(
        book=book,
        clock=step.clock,
        circumstances=circumstances,
        tables=tables,
        states=states,
        next_alert=book.next_alert,
        episode_floor=book.episode_floor,
    )
    end_silences(current)
    cancel_ended_subjects(current)
    if step.has_booted:
        end_with_boot(current)
    count_looks(current, findings)
    deliver(current, policy)
    return current.evaluation()
