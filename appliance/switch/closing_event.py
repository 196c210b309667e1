"""Closing event of an operation, and the exit status that follows from how it ended."""

from collections.abc import Sequence

from appliance.model.operations import Finished, Goal, Kind, Outcome
from appliance.wire.control import Exit
from appliance.wire.control_events import EndedEvent


def closing_event(
    finished: Finished,
    *,
    serving: Sequence[str],
    committed: Sequence[str],
    log: Sequence[str] = (),
) -> EndedEvent:
    """Return the event that closes the conversation about an operation.

    Args:
        finished: Its row.
        serving: Profiles that serve now.
        committed: What a boot starts.
        log: The last lines of the backend that failed, if one did.
    """
    operation = finished.operation
    came_back = finished.outcome is Outcome.ROLLED_BACK or (
        operation.ran and finished.outcome is Outcome.DONE
    )
    return EndedEvent(
        operation=operation.id,
        kind=operation.kind,
        target=operation.target,
        outcome=finished.outcome,
        cause=finished.cause,
        exit=_exit(finished, serves=bool(serving)),
        message=finished.message,
        serving=tuple(serving),
        committed=tuple(committed),
        restored=_restored(operation.goal) if came_back else (),
        log=tuple(log),
        phases_ms=finished.phases_ms,
        ms=round(finished.total_ms, 1),
    )


def _restored(goal: Goal) -> tuple[str, ...]:
    """Return the profiles that had to be started again; the others never stopped."""
    return tuple(n for n in goal.restore if n not in goal.kept)


def _exit(finished: Finished, *, serves: bool) -> int:
    operation = finished.operation
    if finished.outcome is Outcome.DONE:
        return Exit.OK
    if finished.outcome is Outcome.ROLLED_BACK:
        return Exit.RESTORED
    emptied = operation.kind is Kind.SWITCH or (
        operation.kind is Kind.RUN and bool(operation.goal.restore)
    )
    if finished.outcome is Outcome.FAILED and emptied and not serves:
        return Exit.NOT_RESTORED
    return Exit.FAILED
