"""Working copy of the book in one round of the state machine, with the changes that the round records."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from appliance.alerts.book.alert_context import AlertCircumstances, Evaluation
from appliance.alerts.book.alert_rules import AlertTerms
from appliance.alerts.book.alert_state import (
    MOST_STATES,
    AlertBook,
    AlertKey,
    AlertState,
    BookClock,
)
from appliance.alerts.book.alert_tables import AlertTables
from appliance.model.alerts import (
    AlertRule,
    Notice,
    Subject,
    SubjectKind,
    Transition,
    TransitionKind,
)
from appliance.model.words import Mark

_MARKED: Final = frozenset({SubjectKind.PROFILE, SubjectKind.WATCH})
JUDGED_AFTER_BOOT_S: Final = 120.0
"""Time after a boot by which what can be judged is: a minute of grace, and two looks at slow readings."""
_FORGET_AT_ONCE: Final = 8
"""Part of the states that is forgotten when the book is full, so that this is done seldom."""


@dataclass(slots=True, kw_only=True)
class AlertRound:
    """One round; the book that it begins with is not changed."""

    book: AlertBook
    clock: BookClock
    circumstances: AlertCircumstances
    tables: AlertTables
    states: dict[AlertKey, AlertState]
    next_alert: int
    episode_floor: int
    changes: dict[AlertKey, TransitionKind] = field(default_factory=dict)
    """Changes of this round that are not recorded yet."""
    transitions: list[Transition] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)

    def terms_of(self, rule: AlertRule) -> AlertTerms:
        return self.tables.terms[rule]

    def mark_of(self, subject: Subject) -> Mark:
        """Return the mark of a subject; GPUs and the box count as live."""
        marks: Mapping[Subject, Mark] = self.circumstances.marks
        return marks.get(subject, Mark.LIVE)

    def ending_of(self, subject: Subject) -> str:
        """Return why nobody cares for a subject any more: retired or removed; empty: it is cared for."""
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
        """Record a change, and queue a notice of it if targets are told."""
        transition = transition_of(
            kind, state, unix_s=self.clock.unix_s, reason=reason, delivered=is_told
        )
        self.transitions.append(transition)
        if is_told:
            self.notices.append(
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
        return Evaluation(
            book=replace(
                self.book,
                states=self.states,
                next_alert=self.next_alert,
                episode_floor=self.episode_floor,
                clock=self.clock,
            ),
            transitions=tuple(self.transitions),
            notices=tuple(self.notices),
            cancelled=tuple(self.cancelled),
            postponed=tuple(self.postponed),
            postponed_unix_s=self.clock.unix_s + JUDGED_AFTER_BOOT_S if self.postponed else 0.0,
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
