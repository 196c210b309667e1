"""Actions of an operation, and the steps that its process has taken."""

from dataclasses import dataclass

from appliance.domain.operations import Cause, Outcome, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps that this process has taken for the operation, in its present direction."""

    checked: bool = False
    held: bool = False
    drained: bool = False
    stopped: frozenset[str] = frozenset()
    """Profiles whose stop was asked for."""
    started: frozenset[str] = frozenset()
    """Profiles whose start was asked for."""
    warm: frozenset[str] = frozenset()
    run_started: bool = False
    """The start of the command's unit was asked for."""
    run_stopped: bool = False
    """The stop of the command's unit was asked for."""
    committed: bool = False
    failure: str = ""
    """Why the last step failed; empty: it did not."""
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class RunPreflight:
    """Look at everything that could refuse the change."""


@dataclass(frozen=True, slots=True)
class HoldRequests:
    """Ask the gateway to queue new requests."""


@dataclass(frozen=True, slots=True)
class DrainRequests:
    """Let requests in flight to these profiles finish."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Queue a stop job."""

    name: str


@dataclass(frozen=True, slots=True)
class Start:
    """Queue a start job."""

    name: str


@dataclass(frozen=True, slots=True)
class StartRun:
    """Queue a start of the unit that runs the command."""


@dataclass(frozen=True, slots=True)
class StopRun:
    """Queue a stop of the unit that runs the command, with everything in it."""


@dataclass(frozen=True, slots=True)
class WarmUpModel:
    """Ask a model for one real completion."""

    name: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Write the committed names, begin or end the hold, release the requests."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until something changes."""

    phase: Phase
    text: str


@dataclass(frozen=True, slots=True)
class BeginRollback:
    """Begin the roll-back."""

    reason: str
    cause: Cause = Cause.FAILURE
    phase: Phase | None = None
    """Phase that failed, when the operation got further than was observed; None: the present one."""


@dataclass(frozen=True, slots=True)
class BeginRestore:
    """Begin to restore what served before: the command is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """End the operation."""

    outcome: Outcome
    message: str
    cause: Cause | None = None
    """As in `Finished`."""


Action = (
    RunPreflight
    | HoldRequests
    | DrainRequests
    | Stop
    | Start
    | StartRun
    | StopRun
    | WarmUpModel
    | Commit
    | Wait
    | BeginRollback
    | BeginRestore
    | Finish
)
