"""Bar of a profile's states over the last days, from the health agent's record and the operations on record.

====================  =======================================================================
a part of a bar       when
====================  =======================================================================
a recorded state      from the first recorded change on: a state of the status document
                      (``unresponsive`` too), ``degraded`` or ``unknown``
``serving``           before the record: from the end of an operation that brought the profile up,
                      until the next one that concerns it
``changing``          before the record: while an operation that concerns it ran
``stopped``           before the record: after an operation that took it down
``failed``            before the record: after one that failed and restored nothing
``unknown``           before the first operation; and where nothing was recorded, or what
                      operations left is not what is observed now
====================  =======================================================================
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.model.status import ProfileRow
from appliance.presentation.clock_times import local_minute
from appliance.status.state_record import GAP_S
from appliance.wire.json_values import Json, number_in, object_in, text_in, texts_in

DAYS: Final = 7
_LENGTH_S: Final = DAYS * 86_400.0
_RAISES: Final = frozenset({"switch", "start", "restart", "repair"})
MOST_PARTS: Final = 200
"""Parts of a bar that are drawn, the newest."""
MOST_CHANGES: Final = 12
"""Parts of a bar that are told in words, the newest."""
HEIGHTS: Final = {
    "serving": 100.0,
    "degraded": 70.0,
    "unresponsive": 35.0,
    "loading": 50.0,
    "restarting": 50.0,
    "stopping": 50.0,
    "changing": 50.0,
    "failed": 35.0,
    "refused": 35.0,
    "stopped": 15.0,
    "unknown": 100.0,
}
"""Heights by state; each is a class of the style sheet too."""
_NOTHING: Final = frozenset({"stopped", "unknown"})
"""States of which a bar alone would say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """Part of a bar, in per cent of it."""

    state: str
    begin: float
    width: float
    height: float
    """Height of the part, in per cent of the bar: the state can be told without its colour."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBar:
    """One profile."""

    name: str
    parts: tuple[StatePart, ...]
    summary: str
    """Share of the time in each state, for readers who do not see the picture."""
    changes: tuple[str, ...]
    """Sentences about the last parts, the newest first."""


@dataclass(frozen=True, slots=True)
class _Change:
    unix_s: float
    state: str


def state_bars(
    rows: Sequence[ProfileRow], operations: Sequence[Json], record: Json | None, *, now: float
) -> tuple[StateBar, ...]:
    """Return a bar for each profile of which something is on record, or that runs.

    Args:
        rows: Profiles of the status document.
        operations: Operations that are over, in any order.
        record: Answer of the health agent to `states`; None: there is none.
        now: Unix seconds; the end of the bars.
    """
    ended = sorted(operations, key=lambda operation: _ended(operation) or 0.0)
    bars = []
    for row in rows:
        recorded = list(_recorded(row.name, record or {}, now))
        if recorded:
            earlier = _changes(row.name, ended)
            changes = [c for c in earlier if c.unix_s < recorded[0].unix_s] + recorded
            state = None
        else:
            changes, state = [*_changes(row.name, ended), *_now(row)], row.state
        if any(change.state not in _NOTHING for change in changes):
            bars.append(_bar(row.name, changes, state, now))
    return tuple(bars)


def _recorded(name: str, record: Json, now: float) -> Iterable[_Change]:
    """Yield the changes that the health agent has recorded; after a gap nothing is known."""
    found = object_in(record, "profiles").get(name)
    for change in found if isinstance(found, list) else ():
        match change:
            case [int() | float() as unix_s, str() as state] if math.isfinite(unix_s):
                yield _Change(min(float(unix_s), now), state if state in HEIGHTS else "unknown")
            case _:
                pass
    until = number_in(record, "until_unix_s")
    if found and until is not None and now - until > GAP_S:
        yield _Change(until, "unknown")


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
    since = row.since_unix_s
    if row.state == "serving" and since is not None:
        yield _Change(since, "serving")


def _bar(name: str, changes: Sequence[_Change], state: str | None, now: float) -> StateBar:
    """Return a bar; `state`: the present state, where the changes do not end with it."""
    begin = now - _LENGTH_S
    ordered = sorted(changes, key=lambda change: change.unix_s)
    parts = list(_parts(_joined(ordered), state, begin, now))[-MOST_PARTS:]
    widths: dict[str, float] = {}
    for part in parts:
        widths[part.state] = widths.get(part.state, 0.0) + part.width
    shares = [f"{one} {_share(widths[one])}" for one in HEIGHTS if one in widths]
    return StateBar(
        name=name,
        parts=tuple(parts),
        summary=f"{', '.join(shares)} of the last {DAYS} days",
        changes=tuple(part.text for part in reversed(parts[-MOST_CHANGES:])),
    )


def _share(width: float) -> str:
    return f"{width:.0f} %" if width >= 1 else "under 1 %"


def _joined(changes: Iterable[_Change]) -> Iterable[_Change]:
    """Yield the changes that change something."""
    state = ""
    for change in changes:
        if change.state != state:
            yield change
        state = change.state


def _parts(
    changes: Iterable[_Change], present: str | None, begin: float, now: float
) -> Iterable[StatePart]:
    known = [_Change(begin, "unknown"), *changes]
    for number, change in enumerate(known):
        is_last = number + 1 == len(known)
        since, until = max(begin, change.unix_s), now if is_last else known[number + 1].unix_s
        state = change.state
        if is_last and present is not None and (state == "serving") != (present == "serving"):
            state = "unknown"
        if (until := min(now, until)) > since:
            yield StatePart(
                state=state,
                begin=round(100 * (since - begin) / _LENGTH_S, 3),
                width=round(100 * (until - since) / _LENGTH_S, 3),
                height=HEIGHTS[state],
                text=f"{state} {local_minute(since)} to {local_minute(until)}",
            )
