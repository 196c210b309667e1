"""Actions of an operation, and the steps that its process has taken."""

from dataclasses import dataclass

from appliance.model.operations import Cause, Outcome, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps that this process has taken for the operation, in its present direction."""

    checked: bool = False
    held: bool = False
    drained: bool = False
    stopped: frozenset[str] = frozenset()
    """Profiles whose stop job was queued."""
    started: frozenset[str] = frozenset()
    """Profiles whose start job was queued."""
    warm: frozenset[str] = frozenset()
    verified: frozenset[str] = frozenset()
    """Profiles whose engines were compared with them."""
    run_started: bool = False
    """Whether the start of the command's unit was queued."""
    run_stopped: bool = False
    """Whether the stop of the command's unit was queued."""
    committed: bool = False
    failure: str = ""
    """Reason why the last step failed; empty: it did not fail."""
    cancelled: bool = False
    cancelled_by: str = ""
    """Name of who has cancelled it; empty: not known."""
    superseded_by: str = ""
    """Request to which a repair gives way; empty: none."""


@dataclass(frozen=True, slots=True)
class RunPreflight:
    """Action: look at everything that could refuse the change."""


@dataclass(frozen=True, slots=True)
class HoldRequests:
    """Action: ask the gateway to queue new requests."""


@dataclass(frozen=True, slots=True)
class DrainRequests:
    """Action: let requests in flight to these profiles finish."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Action: queue a stop job."""

    name: str


@dataclass(frozen=True, slots=True)
class Start:
    """Action: queue a start job."""

    name: str


@dataclass(frozen=True, slots=True)
class StartRun:
    """Action: queue a start of the unit that runs the command."""


@dataclass(frozen=True, slots=True)
class StopRun:
    """Action: queue a stop of the unit that runs the command, with everything in it."""


@dataclass(frozen=True, slots=True)
class WarmUpModel:
    """Action: ask a model for one real completion."""

    name: str


@dataclass(frozen=True, slots=True)
class VerifyEngine:
    """Action: compare what an engine reports about itself with what its profile declares."""

    name: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Action: write the committed names, begin or end the hold, release the requests."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Action: do nothing until something changes."""

    phase: Phase
    text: str


@dataclass(frozen=True, slots=True)
class BeginRollback:
    """Action: begin the roll-back."""

    reason: str
    cause: Cause = Cause.FAILURE
    phase: Phase | None = None
    """Phase that failed, when the operation got further than was observed; None: the present
    phase."""


@dataclass(frozen=True, slots=True)
class BeginRestore:
    """Action: begin to restore what served before, because the command is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Action: end the operation."""

    outcome: Outcome
    message: str
    cause: Cause | None = None
    """Cause as in `Finished`."""


Action = (
    RunPreflight
    | HoldRequests
    | DrainRequests
    | Stop
    | Start
    | StartRun
    | StopRun
    | WarmUpModel
    | VerifyEngine
    | Commit
    | Wait
    | BeginRollback
    | BeginRestore
    | Finish
)
