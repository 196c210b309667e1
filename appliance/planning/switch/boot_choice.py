"""What an operation writes for the next boot once it has succeeded."""

from dataclasses import dataclass

from appliance.domain.operations import HoldUntil, Kind, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """The changes that the commit makes on disk."""

    names: tuple[str, ...] | None = None
    """Names to serve after a boot, sorted; None: they stay."""
    sets_hold: bool = False
    """Whether the hold is replaced by `hold`."""
    hold: HoldUntil = None
    """The new hold; None: there shall be none."""


def writes_of(operation: Operation, committed: tuple[str, ...]) -> Writes:
    """What `operation` changes when it succeeds; names that are `committed` already stay."""
    goal = operation.goal
    ends_hold = bool(goal.start) and operation.kind is not Kind.REPAIR
    return Writes(
        names=None if goal.commit == committed else goal.commit,
        sets_hold=goal.hold_until is not None or ends_hold,
        hold=goal.hold_until,
    )
