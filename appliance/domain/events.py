"""What an operation says while it runs. The control protocol sends these as they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from appliance.domain.operations import Cause, Kind, Outcome, Phase


class PhaseState(StrEnum):
    """Where one phase stands."""

    STARTED = "started"
    PROGRESS = "progress"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The operation runs."""

    operation: int
    kind: Kind
    target: tuple[str, ...]
    evicts: tuple[str, ...]
    """What is stopped for it."""
    joined: bool
    """It ran already, with the same target."""
    usual_ms: float | None
    """Median of earlier ones; None: there were none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    """One phase began, moved or ended."""

    phase: Phase
    state: PhaseState
    text: str
    ms: float
    """Milliseconds since the phase began."""
    rolling_back: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The operation is over."""

    operation: int
    kind: Kind
    target: tuple[str, ...]
    outcome: Outcome
    cause: Cause | None
    """As in `Finished`."""
    exit: int
    message: str
    serving: tuple[str, ...]
    committed: tuple[str, ...]
    restored: tuple[str, ...] = ()
    """What serves again after a roll-back."""
    log: tuple[str, ...] = ()
    """The last lines of the backend that failed."""
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    ms: float = 0.0


Event = Accepted | PhaseChanged | Ended
