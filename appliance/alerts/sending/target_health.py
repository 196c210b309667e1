"""Health of one target, as its sender has seen it since the start: failures, pauses, recoveries."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from appliance.alerts.sending.outbox_rows import OutboxRow, back_off_s
from appliance.model.alerts import SendOutcome, SendResult

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
