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

The terms of the rules are in `rule` and beside their functions, the counting of looks in `look_counting`, the gates in
`delivery`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from appliance.alerts.book import (
    AlertBook,
    AlertKey,
    AlertPolicy,
    AlertState,
    Evaluation,
    Instant,
)
from appliance.alerts.delivery import deliver
from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.look_counting import (
    advance,
    count_look,
    end_look,
    forget_looks,
    is_more_severe,
)
from appliance.alerts.round import STANDARD_TABLES, AlertRound, AlertTables, transition_of
from appliance.alerts.rule import EndedBy
from appliance.alerts.silences import MOST_BY_CHARACTERS, end_silences
from appliance.model.alerts import (
    AlertPhase,
    Finding,
    Sign,
    TransitionKind,
)
from appliance.model.errors import NotFoundError
from appliance.model.wording import printable, short

_SIGN_RANKS: Final = {Sign.UNKNOWN: 0, Sign.GOOD: 1, Sign.BAD: 2}


def cancel_ended_subjects(current: AlertRound) -> None:
    """Cancel the alerts of subjects that were retired or removed; no message is sent."""
    for state in list(current.states.values()):
        reason = current.ending_of(state.subject)
        if not reason:
            continue
        if state.is_open:
            current.record(TransitionKind.CANCELLED, state, reason=reason)
        if state.alert:
            current.result.cancelled.append(state.alert)
        if reason == "removed":
            current.forget(state)
        elif state.alert or state.signs:
            fresh = AlertState(subject=state.subject, rule=state.rule, episode=state.episode)
            current.keep(fresh)


def end_with_boot(current: AlertRound) -> None:
    """End the alerts about what a boot has ended; messages about the others wait until they are judged."""
    for state in list(current.states.values()):
        if not state.is_open:
            continue
        if EndedBy.BOOT in current.rule_of(state.rule).ends:
            current.changes[state.key] = TransitionKind.RESOLVED
            current.keep(end_look(state, "ended with a boot", current.clock))
        else:
            current.result.postponed.append(state.alert)


def count_looks(current: AlertRound, findings: Sequence[Finding]) -> None:
    """Let each finding change the phase of its state."""
    for key, finding in _one_each(findings).items():
        before = current.states.get(key)
        if before is None:
            if finding.sign is not Sign.BAD:
                continue
            if current.ending_of(finding.subject) or not current.has_room():
                continue
            before = AlertState(
                subject=finding.subject, rule=finding.rule, episode=current.episode_floor
            )
        elif finding.sign is Sign.BAD and current.ending_of(finding.subject):
            continue
        after = count_look(before, finding, current.rule_of(finding.rule), current.clock)
        if after is before:
            continue
        current.keep(_with_phase_change(current, before, after, is_final=finding.is_final))


def _with_phase_change(
    current: AlertRound, before: AlertState, after: AlertState, *, is_final: bool
) -> AlertState:
    """Return the state with what follows from its change of phase or severity."""
    if is_final:
        if before.is_open:
            current.changes[after.key] = TransitionKind.RESOLVED
        return after
    was_firing, is_firing = (one.phase is AlertPhase.FIRING for one in (before, after))
    if is_firing and not was_firing:
        current.changes[after.key] = TransitionKind.FIRED
        return _fired(current, after)
    if was_firing and not is_firing:
        current.changes[after.key] = TransitionKind.RESOLVED
        changes, is_flapping = _counted(current, after)
        return replace(after, changes=changes, flapping=is_flapping, acked_by="", acked_unix_s=None)
    if is_firing and is_more_severe(after.severity, before.severity):
        current.changes[after.key] = TransitionKind.CHANGED
        return replace(after, acked_by="", acked_unix_s=None)
    return after


def _fired(current: AlertRound, state: AlertState) -> AlertState:
    """Return a state that begins to fire: a new episode, unless one goes on that flaps."""
    changes, is_flapping = _counted(current, state)
    alert, episode = state.alert, state.episode
    if not state.flapping:
        alert, episode = f"A{current.next_alert}", episode + 1
        current.next_alert += 1
    return replace(
        state,
        alert=alert,
        episode=episode,
        fired_unix_s=current.clock.unix_s,
        changes=changes,
        flapping=is_flapping,
    )


def _counted(current: AlertRound, state: AlertState) -> tuple[tuple[float, ...], bool]:
    """Return the times of the last changes with that of now, and whether they are too many."""
    tables, now_s = current.tables, current.clock.book_s
    recent = [at_s for at_s in state.changes if now_s - at_s < tables.flapping_s]
    changes = (*recent, now_s)[-tables.flapping_changes :]
    return changes, state.flapping or len(changes) >= tables.flapping_changes


def _one_each(findings: Sequence[Finding]) -> dict[AlertKey, Finding]:
    """Return one finding for each subject and rule: the worst of them."""
    found: dict[AlertKey, Finding] = {}
    for finding in findings:
        key = finding.subject, finding.rule
        other = found.get(key)
        if other is None or _SIGN_RANKS[finding.sign] > _SIGN_RANKS[other.sign]:
            found[key] = finding
    return found


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
        result=Evaluation(book=book),
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
        transitions=[
            transition_of(TransitionKind.ACKED, acked, unix_s=now.unix_s, by=acked.acked_by)
        ],
    )
