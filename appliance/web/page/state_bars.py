"""Bar of a profile's states over the last days, as far as the operations on record tell.

====================  =======================================================================
a part of a bar       when
====================  =======================================================================
``serving``           from the end of an operation that brought the profile up, until the next
                      one that concerns it; and from the time since which it serves now
``changing``          while an operation that concerns it ran
``stopped``           after an operation that took it down
``failed``            after one that failed and restored nothing
``unknown``           before the first operation on record, and where what it left is not what
                      is observed now: systemd, a crash or a reboot came between
====================  =======================================================================
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.planning.status.document import ProfileRow
from appliance.presentation.clock_times import local_minute
from appliance.protocol.json_values import Json, number_in, text_in, texts_in

DAYS: Final = 7
_LENGTH_S: Final = DAYS * 86_400.0
_RAISES: Final = frozenset({"switch", "start", "restart", "repair"})
MOST_PARTS: Final = 120
"""Parts of a bar: the newest are shown, what lies before them is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """Part of a bar, in per cent of it."""

    state: str
    begin: float
    width: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBar:
    """One profile."""

    name: str
    parts: tuple[StatePart, ...]
    summary: str
    """Share of the time in which it served, for readers who do not see the picture."""


@dataclass(frozen=True, slots=True)
class _Change:
    unix_s: float
    state: str


def state_bars(
    rows: Sequence[ProfileRow], operations: Sequence[Json], *, now: float
) -> tuple[StateBar, ...]:
    """Return a bar for each profile that an operation on record concerns, or that runs.

    Args:
        rows: Profiles of the status document.
        operations: Operations that are over, in any order.
        now: Unix seconds; the end of the bars.
    """
    ended = sorted(operations, key=lambda operation: _ended(operation) or 0.0)
    bars = []
    for row in rows:
        changes = [*_changes(row["name"], ended), *_now(row)]
        if changes:
            bars.append(_bar(row, changes, now))
    return tuple(bars)


def _ended(operation: Json) -> float | None:
    return number_in(operation, "finished_unix_s")


def _changes(name: str, operations: Iterable[Json]) -> Iterable[_Change]:
    """Yield the states that operations left a profile in, each from its time on."""
    before = "unknown"
    for operation in operations:
        ended = _ended(operation)
        if ended is None or name not in {
            *texts_in(operation, "profiles"),
            *texts_in(operation, "target"),
        }:
            continue
        began = number_in(operation, "began_unix_s")
        after = _after(name, operation, before)
        if began is not None and after != before:
            yield _Change(min(began, ended), "changing")
        yield _Change(ended, after)
        before = after


def _after(name: str, operation: Json, before: str) -> str:
    match text_in(operation, "outcome"):
        case "done":
            raised = text_in(operation, "kind") in _RAISES and name in texts_in(operation, "target")
            return "serving" if raised else "stopped"
        case "failed":
            return "failed"
        case "rolled-back" | "refused":
            return before
        case _:
            return "unknown"


def _now(row: ProfileRow) -> Iterable[_Change]:
    """Yield the state that is observed, from the time since which it is known to be so."""
    since = row["since_unix_s"]
    if row["state"] == "serving" and since is not None:
        yield _Change(since, "serving")


def _bar(row: ProfileRow, changes: Sequence[_Change], now: float) -> StateBar:
    begin = now - _LENGTH_S
    ordered = sorted(changes, key=lambda change: change.unix_s)[-MOST_PARTS:]
    parts = list(_parts(ordered, row, begin, now))
    served = sum(part.width for part in parts if part.state == "serving")
    return StateBar(
        name=row["name"],
        parts=tuple(parts),
        summary=f"{row['name']} served {served:.0f} % of the last {DAYS} days",
    )


def _parts(
    changes: Sequence[_Change], row: ProfileRow, begin: float, now: float
) -> Iterable[StatePart]:
    known = [_Change(begin, "unknown"), *changes]
    for number, change in enumerate(known):
        until = known[number + 1].unix_s if number + 1 < len(known) else now
        since, until = max(begin, change.unix_s), min(now, until)
        state = change.state
        is_last = number + 1 == len(known)
        if is_last and (state == "serving") != (row["state"] == "serving"):
            state = "unknown"
        if until > since:
            yield StatePart(
                state=state,
                begin=round(100 * (since - begin) / _LENGTH_S, 3),
                width=round(100 * (until - since) / _LENGTH_S, 3),
                text=f"{state} {local_minute(since)} to {local_minute(until)}",
            )
