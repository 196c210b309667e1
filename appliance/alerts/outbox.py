"""Outbox rows: what one target is to get of one transition, when a row is over, and how well the target takes messages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.model.alerts import (
    AlertRule,
    Notice,
    OutboxState,
    SendOutcome,
    SendResult,
    Severity,
    Subject,
    Transition,
    TransitionKind,
)

BACK_OFF_S: Final = (5.0, 15.0, 60.0, 300.0, 900.0)
"""Time before the next attempt, by the number of attempts so far."""
DEAD_AFTER_S: Final = 7 * 86400.0
"""Age after which the next failed attempt is the last one."""
_JITTER_SHARE: Final = 0.2
_REPEATED: Final = frozenset(
    {TransitionKind.REMINDED, TransitionKind.CHANGED, TransitionKind.FLAPPING}
)
"""Kinds of transitions of which an episode may have several."""
WAITING: Final = frozenset({OutboxState.QUEUED, OutboxState.SENDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """Transition that one target is to get a message about."""

    id: int = 0
    """Number in the store, ascending; 0: it is in no store."""
    key: str
    """Unique text, so that a notice that is stored twice makes one row."""
    target: str
    transition: Transition
    created_unix_s: float
    not_before_unix_s: float = 0.0
    is_digest: bool = False
    state: OutboxState = OutboxState.QUEUED
    attempts: int = 0
    tried_unix_s: float | None = None
    """Time of the last attempt; None: there was none."""
    retry_unix_s: float = 0.0
    """Time before which it is not tried again."""
    settled_unix_s: float | None = None
    """Time at which it was sent, cancelled or given up; None: it waits."""
    text: str = ""
    """Phrase about the last attempt, or about its end."""

    @property
    def order(self) -> tuple[Subject, AlertRule]:
        """Return what its messages are in order of: subject and rule."""
        return self.transition.subject, self.transition.rule

    @property
    def due_unix_s(self) -> float:
        """Return the time at which it was to be sent first."""
        return max(self.created_unix_s, self.not_before_unix_s)

    def is_held(self, now_unix_s: float) -> bool:
        """Tell whether it waits for the end of quiet hours or of a grouping.

        It does not where the clock was set back since: the time that is left is not known then.
        """
        return self.created_unix_s <= now_unix_s < self.not_before_unix_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """End of an attempt: the state of its rows, and when they are tried again."""

    state: OutboxState
    text: str = ""
    retry_unix_s: float = 0.0


def rows_of(
    notice: Notice,
    targets: Sequence[str],
    *,
    lowest: Mapping[str, Severity],
    now_unix_s: float,
) -> Sequence[OutboxRow]:
    """Return the rows of a notice, one for each target.

    Args:
        notice: What is to be told.
        targets: Names.
        lowest: Lowest severity of which a target is told; one that is not in it is told of all.
        now_unix_s: The time.
    """
    rank = _RANKS[notice.transition.severity]
    return [
        OutboxRow(
            key=row_key(notice.transition, target),
            target=target,
            transition=notice.transition,
            created_unix_s=now_unix_s,
            not_before_unix_s=notice.not_before_unix_s,
            is_digest=notice.is_digest,
        )
        for target in targets
        if rank <= _RANKS[lowest.get(target, Severity.INFO)]
    ]


def row_key(transition: Transition, target: str) -> str:
    """Return the key of a row; the time makes those of reminders differ."""
    subject, kind = transition.subject.text, transition.kind
    key = f"{subject}:{transition.rule}:{transition.episode}:{kind}:{target}"
    return f"{key}:{transition.unix_s:.0f}" if kind in _REPEATED else key


def severity_rank(severity: Severity) -> int:
    """Return 0 for the most severe, and more for the others."""
    return _RANKS[severity]


_RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}


def back_off_s(failures: int, jitter: float) -> float:
    """Return the time before the next attempt.

    Args:
        failures: Failed attempts so far, one at least.
        jitter: From 0 to 1, at random.
    """
    base_s = BACK_OFF_S[min(failures, len(BACK_OFF_S)) - 1]
    return base_s * (1.0 + _JITTER_SHARE * jitter)


def settled(
    row: OutboxRow, result: SendResult, *, is_joined: bool, now_unix_s: float, jitter: float
) -> Settlement:
    """Return how an attempt ends for one of its rows.

    A row is given up only after an attempt that fails: a clock that is set forward by years, or a box
    that was off for a month, costs no row that can be sent now.

    Args:
        row: The row; the attempt is counted already.
        result: Answer of the notifier.
        is_joined: Whether the message was of several rows: they can still be sent one by one, when
            it is refused.
        now_unix_s: The time.
        jitter: As of `back_off_s`.
    """
    if result.outcome is SendOutcome.SENT:
        return Settlement(state=OutboxState.SENT, text=result.text)
    if result.outcome is SendOutcome.REFUSED and not is_joined:
        return Settlement(state=OutboxState.DEAD, text=result.text or "refused")
    if now_unix_s - row.due_unix_s > DEAD_AFTER_S:
        return Settlement(state=OutboxState.DEAD, text=f"given up: {result.text}")
    retry_unix_s = now_unix_s + back_off_s(max(1, row.attempts), jitter)
    return Settlement(state=OutboxState.QUEUED, text=result.text, retry_unix_s=retry_unix_s)


def after(row: OutboxRow, settlement: Settlement, *, now_unix_s: float) -> OutboxRow:
    """Return the row as a settlement leaves it."""
    waits = settlement.state in WAITING
    return replace(
        row,
        state=settlement.state,
        text=settlement.text,
        retry_unix_s=settlement.retry_unix_s,
        settled_unix_s=None if waits else now_unix_s,
    )


def begun(row: OutboxRow, *, now_unix_s: float) -> OutboxRow:
    """Return the row as it is handed to the notifier."""
    return replace(
        row, state=OutboxState.SENDING, attempts=row.attempts + 1, tried_unix_s=now_unix_s
    )


_MOST_ASKED_S: Final = 3600.0
"""Longest pause that a target may ask for."""
_OUTAGE_ROWS: Final = 2
"""Different rows that fail one after the other where the fault is the target's, and no row's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetHealth:
    """Health of one target."""

    failures: int = 0
    """Attempts that failed since the last message that it took."""
    failed: frozenset[int] = frozenset()
    """Rows of those attempts."""
    paused_unix_s: float = 0.0
    """Time of the last failure."""
    pause_until_unix_s: float = 0.0
    recovered_unix_s: float | None = None
    """End of the last outage; None: there was none."""
    is_single: bool = False
    """Whether it has refused a digest or a summary, and is sent single messages from then on."""

    def is_paused(self, now_unix_s: float) -> bool:
        """Tell whether nothing is sent to it; a clock that was set back ends the pause."""
        return self.paused_unix_s <= now_unix_s < self.pause_until_unix_s

    def is_backing_off(self, row: OutboxRow, now_unix_s: float) -> bool:
        """Tell whether a row waits for its next attempt.

        An outage of the target is no fault of its rows: those that failed in it need not wait on.
        """
        tried = row.tried_unix_s
        if tried is None or not tried <= now_unix_s < row.retry_unix_s:
            return False
        return self.recovered_unix_s is None or tried > self.recovered_unix_s

    def lifted(self, now_unix_s: float) -> "TargetHealth":
        """Return it without a pause, for a network that is back."""
        return replace(self, pause_until_unix_s=0.0, recovered_unix_s=now_unix_s)

    def after(
        self,
        result: SendResult,
        rows: Iterable[OutboxRow],
        *,
        is_joined: bool,
        now_unix_s: float,
        jitter: float,
    ) -> "TargetHealth":
        """Return the health after an attempt to send the message of some rows."""
        if result.outcome == SendOutcome.RETRY:
            failures = self.failures + 1
            asked_s = min(result.retry_after_s or 0.0, _MOST_ASKED_S)
            return replace(
                self,
                failures=failures,
                failed=self.failed | {row.id for row in rows},
                paused_unix_s=now_unix_s,
                pause_until_unix_s=now_unix_s + max(back_off_s(failures, jitter), asked_s),
            )
        was_out = len(self.failed) >= _OUTAGE_ROWS
        return replace(
            self,
            failures=0,
            failed=frozenset(),
            pause_until_unix_s=0.0,
            recovered_unix_s=now_unix_s if was_out else self.recovered_unix_s,
            is_single=self.is_single or (is_joined and result.outcome == SendOutcome.REFUSED),
        )
