"""Plan for the outbox of one target: what is sent next, joined, dropped, or waits.

Rows that wait are read in the order of their numbers, which is that of the transitions:

==========================================  =======================================================
rows of one episode that wait               what is told
==========================================  =======================================================
fired, resolved; never tried, not late      nothing
fired, resolved; tried, or late             resolved, once
fired, resolved; both for a digest          one entry of the digest
fired or reminded, reminded                 the first if it is the firing, else the newest
fired, changed or flapping                  the later one
==========================================  =======================================================

==========================================  =======================================================
a row that                                  keeps back
==========================================  =======================================================
is held (quiet hours, grouping)             later rows of its subject and rule
waits for its next attempt                  later rows of its subject
has failed often while others got through   later rows of its subject and rule
==========================================  =======================================================

Where nothing could be sent for ten minutes and several rows wait, one summary takes their place.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from appliance.alerts.outbox import OutboxRow, TargetHealth, severity_rank
from appliance.model.alerts import AlertRule, Subject, Transition, TransitionKind

OUTAGE_S: Final = 600.0
"""Time without a message sent, while one waited, after which a summary is sent."""
_SUMMARY_ROWS: Final = 4
"""Fewest rows of a summary."""
_LATE_S: Final = 60.0
"""Time that a firing has waited when it ends, from which on its end has a message."""
_STUBBORN_ATTEMPTS: Final = 5
"""Failed attempts of a row from which on it keeps back no other rule of its subject, if the target takes
other messages."""
_SUPERSEDING: Final = frozenset({TransitionKind.CHANGED, TransitionKind.FLAPPING})
_BEGINNING: Final = frozenset({TransitionKind.FIRED, *_SUPERSEDING})
_OVER: Final = "over before it could be sent"
_NEWER: Final = "a newer message takes its place"
_Order = tuple[Subject, AlertRule]


class DeliveryForm(StrEnum):
    """Form of a message."""

    SINGLE = "single"
    DIGEST = "digest"
    """Rows that waited for the end of quiet hours."""
    SUMMARY = "summary"
    """Rows that waited for the end of an outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Message to be rendered and sent, and the rows that it settles."""

    form: DeliveryForm
    target: str
    rows: tuple[OutboxRow, ...]
    """One or more, in order."""

    @property
    def transitions(self) -> Sequence[Transition]:
        """Return the transitions that the message is about, in order."""
        return [row.transition for row in self.rows]

    @property
    def joined_id(self) -> str:
        """Return the id of a digest or summary, the same at each attempt of its first row."""
        return f"{self.form}-{self.rows[0].id}"

    def delay_s(self, now_unix_s: float) -> float:
        """Return for how long the oldest of its rows has been due."""
        return max(0.0, now_unix_s - min(row.due_unix_s for row in self.rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxPlan:
    """Plan for the rows of a target."""

    dropped: Mapping[int, str]
    """Rows to cancel, with the reasons."""
    deliveries: tuple[Delivery, ...]
    """To be sent in this order, until one fails or rows are added; then there is another plan."""
    next_unix_s: float | None
    """Time of the next plan if nothing happens and nothing is to be sent; None: never."""


def plan_deliveries(
    rows: Sequence[OutboxRow],
    health: TargetHealth,
    *,
    now_unix_s: float,
    last_sent_unix_s: float | None,
) -> OutboxPlan:
    """Return what to do with the queued rows of one target.

    Args:
        rows: All that are queued, by their numbers.
        health: Of the target.
        now_unix_s: The time.
        last_sent_unix_s: When the target took a message last; None: never, as far as is known.
    """
    dropped, kept = collapse(rows)
    if not kept or health.is_paused(now_unix_s):
        paused_until = health.pause_until_unix_s if kept else None
        return OutboxPlan(dropped=dropped, deliveries=(), next_unix_s=paused_until)
    ready = [row for row in kept if not row.is_held(now_unix_s)]
    if not health.is_single and _was_out(ready, now_unix_s, last_sent_unix_s):
        deliveries = [_delivery(DeliveryForm.SUMMARY, ready)]
    else:
        singles, digest = _sendable(kept, health, now_unix_s)
        deliveries = [
            _delivery(DeliveryForm.SINGLE, [row]) for row in _most_severe_first(singles, health)
        ]
        if digest:
            form = DeliveryForm.DIGEST if len(digest) > 1 else DeliveryForm.SINGLE
            deliveries.append(_delivery(form, digest))
    return OutboxPlan(
        dropped=dropped,
        deliveries=tuple(deliveries),
        next_unix_s=None if deliveries else _next_time(kept, health, now_unix_s),
    )


def collapse(rows: Iterable[OutboxRow]) -> tuple[Mapping[int, str], Sequence[OutboxRow]]:
    """Return the rows that need no message any more, with the reasons, and the others in order."""
    episodes: dict[tuple[_Order, int], list[OutboxRow]] = defaultdict(list)
    for row in rows:
        episodes[row.order, row.transition.episode].append(row)
    dropped: dict[int, str] = {}
    kept: list[OutboxRow] = []
    for waiting in episodes.values():
        reasons, rest = _collapse_episode(waiting)
        dropped |= reasons
        kept += rest
    return dropped, sorted(kept, key=lambda row: row.id)


def _collapse_episode(rows: Sequence[OutboxRow]) -> tuple[Mapping[int, str], Sequence[OutboxRow]]:
    last = rows[-1]
    earlier = rows[:-1]
    if not earlier:
        return {}, rows
    if last.transition.kind == TransitionKind.RESOLVED:
        return _collapse_end(earlier, last)
    begin = max((n for n, row in enumerate(rows) if row.transition.kind in _BEGINNING), default=-1)
    if begin >= 0:
        told = rows[begin]
        reasons = {row.id: _NEWER for row in rows if row is not told}
        return reasons, [told]
    return {row.id: _NEWER for row in earlier}, [last]


def _collapse_end(
    earlier: Sequence[OutboxRow], end: OutboxRow
) -> tuple[Mapping[int, str], Sequence[OutboxRow]]:
    """Return the same for an episode that is over."""
    begins = [row for row in earlier if row.transition.kind == TransitionKind.FIRED]
    reasons = {row.id: _OVER for row in earlier}
    if not begins:
        return reasons, [end]
    (begin, *_) = begins
    if begin.is_digest and not begin.attempts:
        joined = replace(end, is_digest=True, not_before_unix_s=begin.not_before_unix_s)
        others = {row.id: _OVER for row in earlier if row is not begin}
        return others, [begin, joined]
    is_late = end.created_unix_s - begin.due_unix_s > _LATE_S
    if is_late or any(row.attempts for row in earlier):
        return reasons, [end]
    return {**reasons, end.id: _OVER}, []


def _was_out(ready: Sequence[OutboxRow], now_unix_s: float, last_sent_unix_s: float | None) -> bool:
    """Tell whether nothing could be sent for so long that a summary takes the place of the rows."""
    if len(ready) < _SUMMARY_ROWS:
        return False
    since = min(row.due_unix_s for row in ready)
    is_idle = last_sent_unix_s is None or last_sent_unix_s < since or last_sent_unix_s > now_unix_s
    return now_unix_s - since > OUTAGE_S and is_idle


def _sendable(
    rows: Iterable[OutboxRow], health: TargetHealth, now_unix_s: float
) -> tuple[Sequence[OutboxRow], Sequence[OutboxRow]]:
    """Return the rows that can be sent singly and those of the digest, which goes after them."""
    singles, digest = [], []
    subjects: set[Subject] = set()
    orders: set[_Order] = set()
    digested: set[_Order] = set()
    for row in rows:
        if row.transition.subject in subjects or row.order in orders:
            continue
        if row.is_held(now_unix_s):
            orders.add(row.order)
        elif health.is_backing_off(row, now_unix_s):
            orders.add(row.order)
            if row.attempts < _STUBBORN_ATTEMPTS or health.failures:
                subjects.add(row.transition.subject)
        elif row.is_digest and not health.is_single:
            digest.append(row)
            digested.add(row.order)
        elif row.order in digested:
            orders.add(row.order)  # Its turn comes after the digest.
        else:
            singles.append(row)
    return singles, digest


def _most_severe_first(rows: Iterable[OutboxRow], health: TargetHealth) -> Iterator[OutboxRow]:
    """Yield rows by severity, those of a subject in their order; what failed last comes last."""
    queues: dict[Subject, deque[OutboxRow]] = defaultdict(deque)
    for row in rows:
        queues[row.transition.subject].append(row)

    def place(row: OutboxRow) -> tuple[bool, int, int, Subject]:
        transition = row.transition
        rank = severity_rank(transition.severity)
        return row.id in health.failed, rank, row.id, transition.subject

    heads = [place(queue[0]) for queue in queues.values()]
    heapq.heapify(heads)
    while heads:
        *_, subject = heapq.heappop(heads)
        queue = queues[subject]
        yield queue.popleft()
        if queue:
            heapq.heappush(heads, place(queue[0]))


def _next_time(rows: Iterable[OutboxRow], health: TargetHealth, now_unix_s: float) -> float:
    """Return when the first of some rows, none of which can be sent now, can be."""
    return min(
        row.not_before_unix_s if row.is_held(now_unix_s) else row.retry_unix_s
        for row in rows
        if row.is_held(now_unix_s) or health.is_backing_off(row, now_unix_s)
    )


def _delivery(form: DeliveryForm, rows: Sequence[OutboxRow]) -> Delivery:
    return Delivery(form=form, target=rows[0].target, rows=tuple(rows))
