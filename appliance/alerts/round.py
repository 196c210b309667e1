"""Round of the state machine: working copy of the book with the changes it records, and the tables it goes by.

| Gate | fired | changed | reminded | flapping |
| --- | --- | --- | --- | --- |
| mark (standby), silence, window, inhibition | held | held | held | held |
| ack | held | told, and the ack ends | held | held |
| flapping | is told as flapping | held | held | told once |
| info | held | | | held |
| quiet hours, unless critical | held | | | held |

An empty cell cannot be: what grew worse is no longer of no urgency, and only critical alerts remind. Of a
recovery targets are told if they were told of the fire, whatever gates apply: after quiet hours if it is
not critical, and at the end of flapping.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from appliance.alerts.book import (
    MOST_STATES,
    AlertKey,
    AlertState,
    BookClock,
    DeliveryGate,
    Evaluation,
)
from appliance.alerts.inhibition import INHIBITIONS, LINGER_S, AlertCircumstances, Inhibition
from appliance.alerts.look_counting import (
    GRACE_S,
)
from appliance.alerts.rule import Rule
from appliance.alerts.rules import RULES
from appliance.model.alerts import (
    AlertRule,
    Notice,
    Subject,
    SubjectKind,
    Transition,
    TransitionKind,
)
from appliance.model.words import Mark

_HOUR_S: Final = 3600.0


_NEWS: Final = frozenset(
    {
        TransitionKind.FIRED,
        TransitionKind.CHANGED,
        TransitionKind.REMINDED,
        TransitionKind.FLAPPING,
    }
)


_MESSAGES: Final = frozenset({TransitionKind.FIRED, TransitionKind.FLAPPING})


HOLDS: Final[Mapping[DeliveryGate, frozenset[TransitionKind]]] = {
    DeliveryGate.MARK: _NEWS,
    DeliveryGate.INFO: _MESSAGES,
    DeliveryGate.SILENCE: _NEWS,
    DeliveryGate.WINDOW: _NEWS,
    DeliveryGate.INHIBITION: _NEWS,
    DeliveryGate.ACK: _NEWS - {TransitionKind.CHANGED},
    DeliveryGate.FLAPPING: frozenset({TransitionKind.CHANGED, TransitionKind.REMINDED}),
    DeliveryGate.QUIET_HOURS: _MESSAGES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTables:
    """Tables that the state machine goes by; tests take entries out to see that each one matters."""

    rules: Mapping[AlertRule, Rule]
    inhibitions: tuple[Inhibition, ...]
    holds: Mapping[DeliveryGate, frozenset[TransitionKind]]
    reminders_s: tuple[float, ...] = (1 * _HOUR_S, 4 * _HOUR_S, 12 * _HOUR_S)
    """Times of the first reminders after the message; the last of them is also the time between later
    ones."""
    flapping_changes: int = 4
    """Firings and recoveries within `flapping_s` that are flapping."""
    flapping_s: float = 1800.0
    grouping_s: float = 10.0
    """Time for which a fire waits for others of its rule and severity."""
    digest_waits_s: float = 15.0
    """Time from the end of quiet hours to the digest, in which a look finds what still fires."""
    grace_s: float = GRACE_S
    linger_s: float = LINGER_S


STANDARD_TABLES: Final = AlertTables(rules=RULES, inhibitions=INHIBITIONS, holds=HOLDS)


_MARKED: Final = frozenset({SubjectKind.PROFILE, SubjectKind.WATCH})


JUDGED_AFTER_BOOT_S: Final = 120.0
"""Time after a boot by which what can be judged is: a minute of grace, and two looks at slow readings."""


_FORGET_AT_ONCE: Final = 8
"""Part of the states that is forgotten when the book is full, so that this is done seldom."""


@dataclass(slots=True, kw_only=True)
class AlertRound:
    """One round; the book that it begins with is not changed."""

    result: Evaluation
    """Result so far: the book without the changes to its states and numbers, which are below."""

    clock: BookClock
    circumstances: AlertCircumstances
    tables: AlertTables
    states: dict[AlertKey, AlertState]
    next_alert: int
    episode_floor: int
    changes: dict[AlertKey, TransitionKind] = field(default_factory=dict)
    """Changes of this round that are not recorded yet."""

    def rule_of(self, rule: AlertRule) -> Rule:
        return self.tables.rules[rule]

    def mark_of(self, subject: Subject) -> Mark:
        """Return the mark of a subject; GPUs and the box count as live."""
        marks: Mapping[Subject, Mark] = self.circumstances.marks
        return marks.get(subject, Mark.LIVE)

    def ending_of(self, subject: Subject) -> str:
        """Return why alerts of a subject end: it is retired or removed; empty: it is neither."""
        if self.mark_of(subject) is Mark.RETIRED:
            return "retired"
        existing = self.circumstances.existing
        is_removed = existing is not None and subject.kind in _MARKED and subject not in existing
        return "removed" if is_removed else ""

    def record(
        self,
        kind: TransitionKind,
        state: AlertState,
        *,
        reason: str = "",
        is_told: bool = False,
        not_before_unix_s: float = 0.0,
        is_digest: bool = False,
        group: str = "",
    ) -> None:
        """Record a change, and queue a notice of it if targets are to have a message."""
        transition = transition_of(
            kind, state, unix_s=self.clock.unix_s, reason=reason, delivered=is_told
        )
        self.result.transitions.append(transition)
        if is_told:
            self.result.notices.append(
                Notice(
                    transition=transition,
                    not_before_unix_s=not_before_unix_s,
                    is_digest=is_digest,
                    group=group,
                )
            )

    def has_room(self) -> bool:
        """Tell whether the book takes another state; those that are ok give way, the oldest first."""
        if len(self.states) < MOST_STATES:
            return True
        idle = [state for state in self.states.values() if state.is_idle]
        idle.sort(key=lambda state: state.looked_s)
        for state in idle[: MOST_STATES // _FORGET_AT_ONCE]:
            self.forget(state)
        return bool(idle)

    def keep(self, state: AlertState) -> None:
        """Keep a state, unless it is as that of a subject and rule that are new."""
        if state.is_worth_keeping:
            self.states[state.key] = state
        else:
            self.states.pop(state.key, None)

    def forget(self, state: AlertState) -> None:
        """Forget a state, but no number of an episode."""
        del self.states[state.key]
        self.episode_floor = max(self.episode_floor, state.episode)

    def evaluation(self) -> Evaluation:
        """Return the result of the round."""
        return replace(
            self.result,
            book=replace(
                self.result.book,
                states=self.states,
                next_alert=self.next_alert,
                episode_floor=self.episode_floor,
                clock=self.clock,
            ),
            postponed_unix_s=self.clock.unix_s + JUDGED_AFTER_BOOT_S
            if self.result.postponed
            else 0.0,
        )


def transition_of(
    kind: TransitionKind,
    state: AlertState,
    *,
    unix_s: float,
    by: str = "",
    reason: str = "",
    delivered: bool = False,
) -> Transition:
    """Return the record of a change of an alert."""
    return Transition(
        unix_s=unix_s,
        kind=kind,
        alert=state.alert,
        subject=state.subject,
        rule=state.rule,
        episode=state.episode,
        severity=state.severity,
        fact=state.fact,
        details=state.details,
        likely=state.likely,
        command=state.command,
        since_unix_s=state.since_unix_s,
        over=state.over,
        ended_unix_s=state.ended_unix_s,
        by=by,
        reason=reason,
        delivered=delivered,
    )
