"""Events of an operation. The control protocol sends these as they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from appliance.domain.operations import Cause, Kind, Outcome, Phase


class PhaseState(StrEnum):
    """State of one phase."""

    STARTED = "started"
    PROGRESS = "progress"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Event: the operation was accepted, or the one that runs was joined."""

    operation: int
    kind: Kind
    target: tuple[str, ...]
    evicts: tuple[str, ...]
    """Profiles that are stopped for the operation."""
    joined: bool
    """Whether the operation ran already, with the same target."""
    usual_ms: float | None
    """Median duration of earlier operations of the kind; None: there were none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    """Event: one phase began, made progress or ended."""

    phase: Phase
    state: PhaseState
    text: str
    ms: float
    """Milliseconds since the phase began."""
    rolling_back: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Event: the operation is over."""

    operation: int
    kind: Kind
    target: tuple[str, ...]
    outcome: Outcome
    cause: Cause | None
    """Cause as in `Finished`."""
    exit: int
    message: str
    serving: tuple[str, ...]
    committed: tuple[str, ...]
    restored: tuple[str, ...] = ()
    """Profiles that serve again after a roll-back."""
    log: tuple[str, ...] = ()
    """Last lines of the log of the backend that failed."""
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    ms: float = 0.0


Event = Accepted | PhaseChanged | Ended
