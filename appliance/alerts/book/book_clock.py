"""Clock of the alert book, over suspends, boots and pauses of the agent.

| Since the last evaluation | Bad looks before it | New bad looks |
| --- | --- | --- |
| the box was suspended, or has booted | forgotten, unless they have fired | count after 60 s of grace |
| more than 60 s without an evaluation | forgotten, unless they have fired | count at once |
| else | count | count |
"""

from dataclasses import dataclass
from typing import Final

from appliance.alerts.book.alert_context import Instant
from appliance.alerts.book.alert_state import BookClock

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
