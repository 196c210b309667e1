"""Counting of looks: when a state begins to fire, and when it is over.

| Phase | Look | Next phase |
| --- | --- | --- |
| any | unknown, or bad within the grace after a resume | the same |
| ok, pending | bad, and proven or often and long enough by the rule | firing |
| ok, pending | bad otherwise | pending |
| pending | good | ok; the bad looks are kept and still count among the last ones |
| firing | good, often and long enough | ok; its looks are forgotten: the next alert has a start of its own |
| any | good, and final: what it is about is gone | ok, and flaps no more |
| firing | else | firing |

Looks are 10 s apart. Those that are closer, because something has changed in between, count as one, and
the last of them decides; so do bad looks at one and the same reading. A gap in which nothing was seen adds at most 30 s to a span.

The clock of the book runs over suspends, boots and pauses of the agent:

| Since the last evaluation | Bad looks before it | New bad looks |
| --- | --- | --- |
| the box was suspended, or has booted | forgotten, unless they have fired | count after 60 s of grace |
| more than 60 s without an evaluation | forgotten, unless they have fired | count at once |
| else | count | count |
"""

from dataclasses import dataclass, replace
from typing import Final

from appliance.alerts.book import (
    MOST_CHARACTERS,
    MOST_DETAILS,
    AlertState,
    BookClock,
    Instant,
)
from appliance.alerts.rule import Rule
from appliance.model.alerts import AlertPhase, Finding, Severity, Sign

_BAD: Final = "b"
_GOOD: Final = "g"
_SLOT_S: Final = 8.0
"""Least time between two looks that count as two: looks are 10 s apart, give or take a busy box."""
_LONGEST_STEP_S: Final = 30.0
_RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}


def is_more_severe(severity: Severity, other: Severity) -> bool:
    return _RANKS[severity] < _RANKS[other]


def count_look(state: AlertState, finding: Finding, rule: Rule, clock: BookClock) -> AlertState:
    """Return the state after a look; the same object if the look changes nothing."""
    if finding.sign is Sign.UNKNOWN:
        return state
    if finding.sign is Sign.GOOD and finding.is_final:
        return end_look(state, finding.over, clock)
    if finding.sign is Sign.GOOD:
        return _after_good(state, rule, clock)
    if clock.book_s < clock.grace_until_s:
        return state
    return _after_bad(state, finding, rule, clock)


def forget_looks(state: AlertState) -> AlertState:
    """Return the state after a gap, before which bad looks do not count."""
    if not state.signs:
        return state
    if state.phase is not AlertPhase.PENDING:
        return replace(state, signs="", same_s=0.0)
    ended_unix_s = state.ended_unix_s
    if ended_unix_s is not None:
        ended_unix_s = max(ended_unix_s, state.since_unix_s or 0.0)
    return replace(state, phase=AlertPhase.OK, signs="", same_s=0.0, ended_unix_s=ended_unix_s)


def end_look(state: AlertState, over: str, clock: BookClock) -> AlertState:
    """Return the state after the end of what it is about, whatever its looks were."""
    if state.is_idle and _BAD not in state.signs:
        return state
    ended_unix_s = clock.unix_s if state.ended_unix_s is None else state.ended_unix_s
    return replace(
        state,
        phase=AlertPhase.OK,
        flapping=False,
        changes=(),
        signs="",
        same_s=0.0,
        over=over,
        ended_unix_s=ended_unix_s if state.is_open else state.ended_unix_s,
    )


def _after_good(state: AlertState, rule: Rule, clock: BookClock) -> AlertState:
    if state.phase is AlertPhase.OK and _BAD not in state.signs:
        return state
    signs, signed_s, same_s = _signed(state, _GOOD, rule, clock)
    phase = state.phase
    is_over = signs.endswith(_GOOD * rule.good_looks) and same_s >= rule.good_s
    if phase is AlertPhase.FIRING and is_over:
        return replace(
            state,
            phase=AlertPhase.OK,
            signs="",
            same_s=0.0,
            looked_s=clock.book_s,
            ended_unix_s=clock.unix_s - same_s,
        )
    ended_unix_s = state.ended_unix_s
    if phase is AlertPhase.PENDING:
        phase = AlertPhase.OK
        ended_unix_s = None if ended_unix_s is None else clock.unix_s
    return replace(
        state,
        phase=phase,
        signs=signs,
        signed_s=signed_s,
        same_s=same_s,
        looked_s=clock.book_s,
        ended_unix_s=ended_unix_s,
    )


def _after_bad(state: AlertState, finding: Finding, rule: Rule, clock: BookClock) -> AlertState:
    severity = finding.severity or rule.severity
    is_firing = state.phase is AlertPhase.FIRING
    if is_firing and is_more_severe(state.severity, severity):
        severity = state.severity
    begun_unix_s = state.since_unix_s if _BAD in state.signs or is_firing else None
    since_unix_s = finding.since_unix_s or begun_unix_s or clock.unix_s
    if is_firing and _GOOD not in state.signs and _BAD in state.signs:
        signs, signed_s, same_s = state.signs, state.signed_s, state.same_s
        looked_s, phase, read_s = state.looked_s, state.phase, state.read_s
    else:
        is_same = finding.read_s is not None and finding.read_s == state.read_s
        signs, signed_s, same_s = _signed(state, _BAD, rule, clock, is_same=is_same)
        looked_s, read_s = clock.book_s, finding.read_s
        bad_looks = signs[-rule.of_looks :].count(_BAD)
        is_enough = bad_looks >= rule.bad_looks and same_s >= rule.bad_s
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
        ended_unix_s=None if phase is AlertPhase.FIRING else state.ended_unix_s,
        over="" if phase is AlertPhase.FIRING else state.over,
        read_s=read_s,
        signs=signs,
        signed_s=signed_s,
        same_s=same_s,
        looked_s=looked_s,
    )
    return state if after == state else after


def _signed(
    state: AlertState, sign: str, rule: Rule, clock: BookClock, *, is_same: bool = False
) -> tuple[str, float, float]:
    """Return the last looks with a new one, the beginning of its slot, and how long its sign holds.

    Args:
        state: The state.
        sign: Sign of the look.
        rule: Terms of its rule.
        clock: Clock of the book.
        is_same: Whether the reading was judged by the look before.
    """
    same_s = 0.0
    if state.signs.endswith(sign):
        same_s = state.same_s + min(clock.book_s - state.looked_s, _LONGEST_STEP_S)
    is_same = is_same and state.signs.endswith(sign)
    if state.signs and (is_same or clock.book_s - state.signed_s < _SLOT_S):
        return state.signs[:-1] + sign, state.signed_s, same_s
    return (state.signs + sign)[-rule.kept_looks :], clock.book_s, same_s


GRACE_S: Final = 60.0
_LONGEST_GAP_S: Final = 60.0
_SUSPEND_S: Final = 5.0
"""Least difference between the two monotonic clocks that counts as a suspend: they are read
one after the other, on a box that may be busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStep:
    """Clock after a step, and whether the looks before it still count."""

    clock: BookClock
    has_gap: bool = False
    has_booted: bool = False


def advance(last: BookClock | None, now: Instant, grace_s: float = GRACE_S) -> ClockStep:
    """Return the clock of the book at an evaluation; `last` is that of the one before."""
    if last is None:
        return ClockStep(clock=_clock(now, book_s=0.0, grace_until_s=0.0))
    is_named = bool(now.boot_id and last.boot_id)
    has_booted = now.boot_id != last.boot_id if is_named else now.boot_s < last.boot_s
    slept_s = (now.boot_s - now.monotonic_s) - (last.boot_s - last.monotonic_s)
    passed_s = max(0.0, now.unix_s - last.unix_s) if has_booted else now.boot_s - last.boot_s
    book_s = last.book_s + passed_s
    grace_until_s = last.grace_until_s
    is_new_start = has_booted or slept_s > _SUSPEND_S
    if is_new_start:
        grace_until_s = book_s + grace_s
    return ClockStep(
        clock=_clock(now, book_s=book_s, grace_until_s=grace_until_s),
        has_gap=is_new_start or passed_s > _LONGEST_GAP_S,
        has_booted=has_booted,
    )


def _clock(now: Instant, *, book_s: float, grace_until_s: float) -> BookClock:
    return BookClock(
        unix_s=now.unix_s,
        monotonic_s=now.monotonic_s,
        boot_s=now.boot_s,
        boot_id=now.boot_id,
        book_s=book_s,
        grace_until_s=grace_until_s,
    )
