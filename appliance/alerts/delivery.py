"""Delivery: messages about what fires, what grew worse, what goes on and what is over.

Gates hold deliveries back and never the evaluation. A delivery that is held is made as soon as its gate
opens, if the alert still fires by then; so nothing that is over is told, and nothing that goes on is lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.alerts.book import AlertPolicy, AlertState, DeliveryGate
from appliance.alerts.inhibition import Inhibitors
from appliance.alerts.look_counting import is_more_severe
from appliance.alerts.round import AlertRound, AlertTables
from appliance.alerts.rule import Rule
from appliance.alerts.silences import quiet_until, silence_phrases, windows_at
from appliance.model.alerts import AlertPhase, Severity, TransitionKind
from appliance.model.words import Mark
from appliance.wire.alert_requests import PlannedWindow

BOX_NAME: Final = "box"
"""Name of the box among the subjects of a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWindows:
    """Planned windows of one moment, by subject."""

    everything: str = ""
    """Name of one that is about everything; empty: none is."""
    by_subject: Mapping[str, str]

    def of(self, name: str) -> str:
        """Return the name of a window that is about a subject; empty: none is."""
        return self.everything or self.by_subject.get(name or BOX_NAME, "")


def open_windows(windows: Sequence[PlannedWindow]) -> OpenWindows:
    """Return the windows of a moment by subject."""
    return OpenWindows(
        everything=next((window.name for window in windows if not window.subjects), ""),
        by_subject={name: window.name for window in windows for name in window.subjects},
    )


def gates_of(
    state: AlertState,
    rule: Rule,
    *,
    mark: Mark,
    silence: str,
    window: str,
    is_quiet: bool,
) -> Mapping[DeliveryGate, str]:
    """Return the gates that apply to an alert in their order, each with its phrase.

    Args:
        state: State of the alert.
        rule: Terms of its rule.
        mark: Mark of its subject.
        silence: Phrase about the silence of its subject; empty: there is none.
        window: Name of the planned window that is about it; empty: there is none.
        is_quiet: Whether these are quiet hours.
    """
    found: dict[DeliveryGate, str] = {}
    if mark is Mark.STANDBY and rule.least_mark is Mark.LIVE:
        found[DeliveryGate.MARK] = "standby"
    if state.severity is Severity.INFO:
        found[DeliveryGate.INFO] = "of no urgency"
    if silence:
        found[DeliveryGate.SILENCE] = silence
    if window:
        found[DeliveryGate.WINDOW] = f"planned window {window}"
    if state.inhibited_by:
        found[DeliveryGate.INHIBITION] = f"inhibited by {state.inhibited_by}"
    if state.acked_unix_s is not None:
        found[DeliveryGate.ACK] = f"acked by {state.acked_by}"
    if state.flapping:
        found[DeliveryGate.FLAPPING] = "flapping"
    if is_quiet and state.severity is not Severity.CRITICAL:
        found[DeliveryGate.QUIET_HOURS] = "quiet hours"
    return found


_FLAPPING: Final = "flapping"


def deliver(current: AlertRound, policy: AlertPolicy) -> None:
    """Record the changes of a round, and queue notices of what no gate holds."""
    delivery = _Delivery(current, policy)
    for key, state in list(current.states.items()):
        if state.is_idle and key not in current.changes:
            continue
        after = delivery.inhibited(state)
        if after.phase is not AlertPhase.PENDING or after.flapping:
            after = delivery.told(after)
        if after is not state:
            current.states[key] = after


def reminders_due(state: AlertState, now_s: float, tables: AlertTables) -> int:
    """Return how many reminders have come due since the last message."""
    passed_s = now_s - state.told_s
    every_s = tables.reminders_s[-1]
    if passed_s < every_s:
        return sum(passed_s >= at_s for at_s in tables.reminders_s)
    return len(tables.reminders_s) - 1 + int(passed_s // every_s)


class _Delivery:
    """Deliveries of one round, with what holds for all alerts at its moment."""

    def __init__(self, current: AlertRound, policy: AlertPolicy) -> None:
        self._round = current
        self._tables = current.tables
        self._now_s = current.clock.book_s
        self._unix_s = unix_s = current.clock.unix_s
        self._silences = silence_phrases(current.result.book.silences)
        self._windows = open_windows(windows_at(current.result.book.windows, policy, unix_s))
        quiet_until_unix_s = quiet_until(policy, unix_s)
        self._is_quiet = quiet_until_unix_s is not None
        self._digest_unix_s = (quiet_until_unix_s or unix_s) + self._tables.digest_waits_s
        self._inhibitors = Inhibitors(
            self._tables.inhibitions, current.states, current.circumstances, unix_s
        )
        self._groups = {
            (state.severity, state.rule): state.due_unix_s
            for state in current.states.values()
            if state.told and 0 < state.due_unix_s - unix_s <= self._tables.grouping_s
        }
        """Times at which the messages go that still wait for others, by what joins them."""

    def inhibited(self, state: AlertState) -> AlertState:
        """Return the state with the cause that explains it, or has just ended."""
        cause = self._inhibitors.cause_of(state.subject, state.rule)
        if cause:
            if cause == state.inhibited_by and state.inhibitor_gone_s is None:
                return state
            return replace(state, inhibited_by=cause, inhibitor_gone_s=None)
        if not state.inhibited_by:
            return state
        if state.inhibitor_gone_s is None:
            return replace(state, inhibitor_gone_s=self._now_s)
        if self._now_s - state.inhibitor_gone_s < self._tables.linger_s:
            return state
        return replace(state, inhibited_by="", inhibitor_gone_s=None)

    def told(self, state: AlertState) -> AlertState:
        """Return an alert after its message was queued, if one is due and no gate holds it."""
        change = self._round.changes.get(state.key)
        if state.flapping and self._now_s - state.changes[-1] >= self._tables.flapping_s:
            state = replace(state, flapping=False, flapping_told=False)
        if not state.is_open:
            return self._over(state, change)
        wish = self._wish(state)
        held, reason = self._held(state, wish or TransitionKind.REMINDED)
        is_told = wish is not None and held is None
        if change is not None and not (is_told and change in {wish, TransitionKind.CHANGED}):
            self._round.record(change, state, reason=reason or _FLAPPING)
        if wish is not None and held is None:
            state = self._tell(wish, state)
        due = state.due_unix_s
        if held is DeliveryGate.QUIET_HOURS and wish is not None:
            due = self._digest_unix_s
        if (held, reason, due) != (state.gate, state.reason, state.due_unix_s):
            state = replace(state, gate=held, reason=reason, due_unix_s=due)
        return state

    def _wish(self, state: AlertState) -> TransitionKind | None:
        """Return the kind of message that is due about an open alert; None: there is nothing new.

        Who was told that it fires is told that it comes and goes, if not at the change then once no gate
        holds it: else the last word is that it fires.
        """
        is_firing = state.phase is AlertPhase.FIRING
        is_news = is_firing and not state.is_recovering
        if state.flapping and not state.flapping_told:
            return TransitionKind.FLAPPING if is_news or state.told else None
        if not is_firing:
            return None
        if not state.told:
            return TransitionKind.FIRED if is_news else None
        if state.told_severity is not None and is_more_severe(state.severity, state.told_severity):
            return TransitionKind.CHANGED
        if state.severity is Severity.CRITICAL and (
            reminders_due(state, self._now_s, self._tables) > state.reminders
        ):
            return TransitionKind.REMINDED
        return None

    def _held(self, state: AlertState, kind: TransitionKind) -> tuple[DeliveryGate | None, str]:
        """Return the first gate that holds a delivery back, with its phrase."""
        gates = gates_of(
            state,
            self._round.rule_of(state.rule),
            mark=self._round.mark_of(state.subject),
            silence=self._silences.get(state.subject, ""),
            window=self._windows.of(state.subject.name),
            is_quiet=self._is_quiet,
        )
        for gate, reason in gates.items():
            if kind in self._tables.holds[gate]:
                return gate, reason
        return None, ""

    def _tell(self, kind: TransitionKind, state: AlertState) -> AlertState:
        """Queue a message, and return the alert after it."""
        not_before_unix_s, group = 0.0, ""
        is_digest = (
            state.gate is DeliveryGate.QUIET_HOURS and state.severity is not Severity.CRITICAL
        )
        if is_digest:
            not_before_unix_s = state.due_unix_s
        elif kind is TransitionKind.FIRED:
            key = state.severity, state.rule
            alone_unix_s = self._unix_s + self._tables.grouping_s
            not_before_unix_s = self._groups.setdefault(key, alone_unix_s)
            group = f"{state.severity}:{state.rule}:{not_before_unix_s:.0f}"
        self._round.record(
            kind,
            state,
            is_told=True,
            not_before_unix_s=not_before_unix_s,
            is_digest=is_digest,
            group=group,
        )
        if kind is TransitionKind.REMINDED:
            return replace(state, reminders=reminders_due(state, self._now_s, self._tables))
        return replace(
            state,
            told=True,
            told_severity=state.severity,
            told_s=self._now_s,
            due_unix_s=not_before_unix_s,
            reminders=0,
            flapping_told=kind is TransitionKind.FLAPPING,
        )

    def _over(self, state: AlertState, change: TransitionKind | None) -> AlertState:
        """Return an alert that is over; a message says so if one was queued about its fire."""
        if state.told:
            is_digest = self._is_quiet and state.severity is not Severity.CRITICAL
            self._round.record(
                TransitionKind.RESOLVED,
                state,
                is_told=True,
                not_before_unix_s=self._digest_unix_s if is_digest else 0.0,
                is_digest=is_digest,
            )
        elif change is not None:
            self._round.record(change, state, reason=state.reason)
        return replace(
            state,
            told=False,
            told_severity=None,
            flapping_told=False,
            acked_by="",
            acked_unix_s=None,
            gate=None,
            reason="",
            inhibited_by="",
            inhibitor_gone_s=None,
            due_unix_s=0.0,
        )
