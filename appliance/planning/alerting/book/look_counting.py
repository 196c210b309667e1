"""Counting of looks: when a state begins to fire, and when it is over.

| Phase | Look | Next phase |
| --- | --- | --- |
| any | unknown, or bad within the grace after a resume | the same |
| ok, pending | bad, and proven or often and long enough by the rule's terms | firing |
| ok, pending | bad otherwise | pending |
| pending | good | ok; the bad looks are kept and still count among the last ones |
| firing | good, often and long enough | ok |
| firing | else | firing |

Looks are 10 s apart. Those that are closer, because something has changed in between, count as one, and
the last of them decides. A gap in which nothing was seen adds at most 30 s to a span.
"""

from dataclasses import replace
from typing import Final

from appliance.domain.alerts import AlertPhase, Finding, Severity, Sign
from appliance.planning.alerting.book.alert_rules import AlertTerms
from appliance.planning.alerting.book.alert_state import (
    MOST_CHARACTERS,
    MOST_DETAILS,
    AlertState,
    BookClock,
)

_BAD: Final = "b"
_GOOD: Final = "g"
_SLOT_S: Final = 8.0
"""Least time between two looks that count as two: looks are 10 s apart, give or take a busy box."""
_LONGEST_STEP_S: Final = 30.0
_RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}


def is_more_severe(severity: Severity, other: Severity) -> bool:
    return _RANKS[severity] < _RANKS[other]


def count_look(
    state: AlertState, finding: Finding, terms: AlertTerms, clock: BookClock
) -> AlertState:
    """Return the state after a look; the same object if the look changes nothing."""
    if finding.sign is Sign.UNKNOWN:
        return state
    if finding.sign is Sign.GOOD:
        return _after_good(state, terms, clock)
    if clock.book_s < clock.grace_until_s:
        return state
    return _after_bad(state, finding, terms, clock)


def forget_looks(state: AlertState) -> AlertState:
    """Return the state after a gap, before which bad looks do not count."""
    if not state.signs:
        return state
    phase = AlertPhase.OK if state.phase is AlertPhase.PENDING else state.phase
    return replace(state, phase=phase, signs="", same_s=0.0)


def _after_good(state: AlertState, terms: AlertTerms, clock: BookClock) -> AlertState:
    if state.phase is AlertPhase.OK and _BAD not in state.signs:
        return state
    signs, signed_s, same_s = _signed(state, _GOOD, terms, clock)
    phase = state.phase
    is_over = signs.endswith(_GOOD * terms.good_looks) and same_s >= terms.good_s
    if phase is AlertPhase.PENDING or is_over:
        phase = AlertPhase.OK
    return replace(
        state, phase=phase, signs=signs, signed_s=signed_s, same_s=same_s, looked_s=clock.book_s
    )


def _after_bad(
    state: AlertState, finding: Finding, terms: AlertTerms, clock: BookClock
) -> AlertState:
    severity = finding.severity or terms.severity
    is_firing = state.phase is AlertPhase.FIRING
    if is_firing and is_more_severe(state.severity, severity):
        severity = state.severity
    begun_unix_s = state.since_unix_s if _BAD in state.signs or is_firing else None
    since_unix_s = finding.since_unix_s or begun_unix_s or clock.unix_s
    if is_firing and _GOOD not in state.signs and _BAD in state.signs:
        signs, signed_s, same_s = state.signs, state.signed_s, state.same_s
        looked_s, phase = state.looked_s, state.phase
    else:
        signs, signed_s, same_s = _signed(state, _BAD, terms, clock)
        looked_s = clock.book_s
        bad_looks = signs[-terms.of_looks :].count(_BAD)
        is_enough = bad_looks >= terms.bad_looks and same_s >= terms.bad_s
        fires = is_firing or finding.is_proven or is_enough
        phase = AlertPhase.FIRING if fires else AlertPhase.PENDING
    after = replace(
        state,
        phase=phase,
        severity=severity,
        fact=finding.fact[:MOST_CHARACTERS],
        details=tuple(line[:MOST_CHARACTERS] for line in finding.details[:MOST_DETAILS]),
        likely=finding.likely[:MOST_CHARACTERS],
        command=finding.command[:MOST_CHARACTERS],
        since_unix_s=since_unix_s,
        signs=signs,
        signed_s=signed_s,
        same_s=same_s,
        looked_s=looked_s,
    )
    return state if after == state else after


def _signed(
    state: AlertState, sign: str, terms: AlertTerms, clock: BookClock
) -> tuple[str, float, float]:
    """Return the last looks with a new one, the beginning of its slot, and how long its sign holds."""
    same_s = 0.0
    if state.signs.endswith(sign):
        same_s = state.same_s + min(clock.book_s - state.looked_s, _LONGEST_STEP_S)
    if state.signs and clock.book_s - state.signed_s < _SLOT_S:
        return state.signs[:-1] + sign, state.signed_s, same_s
    return (state.signs + sign)[-terms.kept_looks :], clock.book_s, same_s
