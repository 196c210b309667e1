"""Operations: what the supervisor has been asked to do, how far each has come, and its events.

==============  =======================================================================
phase           what ends it
==============  =======================================================================
preflight       nothing speaks against the change; nothing has been touched
hold            the gateway queues new requests
drain           requests in flight have finished, or their deadline has passed
stop            every unit in the way is stopped
release         the gate has seen the memory come back
run             a command that ran in place of the models has ended
start           the engine's process runs
load            the engine says that it is ready
warm-up         it has answered one real request
verify          what it reports about itself is what its profile declares
commit          the names to serve after a boot are on disk; requests are released
==============  =======================================================================

A failure after preflight begins a roll-back: the same phases, towards the profiles
that served before. So does the end of a command, which is no failure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    SWITCH = "switch"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    HOLD = "hold"
    REPAIR = "repair"
    """Operation of the supervisor's own: bring committed profiles back after a crash or an ended
    hold."""
    RUN = "run"
    """Command of an operator in place of models, which come back when the command ends."""


class Phase(StrEnum):
    """Phase of an operation. The order of definition is the order of the phases."""

    PREFLIGHT = "preflight"
    HOLD = "hold"
    DRAIN = "drain"
    STOP = "stop"
    RELEASE = "release"
    RUN = "run"
    START = "start"
    LOAD = "load"
    WARM_UP = "warm-up"
    VERIFY = "verify"
    COMMIT = "commit"


PHASE_ORDER: Final[Mapping[Phase, int]] = {phase: i for i, phase in enumerate(Phase)}


class Outcome(StrEnum):
    DONE = "done"
    ROLLED_BACK = "rolled-back"
    """The operation failed, and the profiles that served before serve again."""
    FAILED = "failed"
    """The operation failed, and the profiles that served before do not serve."""
    REFUSED = "refused"
    """The operation was refused before it changed anything."""
    SUPERSEDED = "superseded"
    """A unit that was started by hand took the devices meanwhile, and stays; or a repair gave way to a
    person's request."""
    INTERRUPTED = "interrupted"
    """A shutdown or a power cut ended the operation; the next boot follows the committed names."""


class Cause(StrEnum):
    """Cause of a roll-back, or of another end than the one that was asked for."""

    FAILURE = "failure"
    CANCELLED = "cancelled"
    COMMAND_ENDED = "command-ended"
    """The command of a run is over, which is no failure."""


FOREVER: Final = "forever"
HoldUntil = float | str | None
"""Unix seconds when a hold ends, `FOREVER`, or None: no hold."""


def has_run_out(hold: HoldUntil, now_unix_s: float) -> bool:
    """Tell whether a hold was timed and its time has passed."""
    return isinstance(hold, float) and hold <= now_unix_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """State of the box that an operation is to reach."""

    stop: tuple[str, ...] = ()
    """Profiles that must not run, sorted."""
    start: tuple[str, ...] = ()
    """Profiles that must serve, in the order of their start."""
    restore: tuple[str, ...] = ()
    """Profiles to serve when the operation fails: those that ran and are stopped for it, or served
    already."""
    kept: tuple[str, ...] = ()
    """Profiles of `start`, sorted, that ran already and are not stopped. A failure leaves them
    alone."""
    commit: tuple[str, ...] | None = None
    """Names to serve after a boot, sorted; None: unchanged."""
    hold_until: HoldUntil = None
    """Hold to begin at the end; None: none."""
    claim: tuple[str, ...] = ()
    """Devices that a command needs, sorted; empty: no command is to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation, as a row of the store has it."""

    id: int
    kind: Kind
    target: tuple[str, ...]
    """Profiles that were asked for; of a run, the command's name."""
    goal: Goal
    boot_id: str
    requested_by: str
    began_unix_s: float
    began_s: float = 0.0
    """Seconds on the monotonic clock of the operation's boot; 0: not known (a row of an older
    release)."""
    rollback: bool = True
    """Whether a failure brings back what served before; False: a failed start is stopped and
    nothing is restored."""
    drain_s: float | None = None
    """Seconds for the drain; None: each profile's own deadline. 0: do not wait."""
    phase: Phase = Phase.PREFLIGHT
    ends: Mapping[str, int] = field(default_factory=dict)
    """Ends of the supervisor in each phase (`phase_name`), other than those in order."""
    cause: Cause | None = None
    """Cause for which the operation goes back to what served before; None: it does not go back."""
    reason: str = ""
    """Sentence that states `cause`; empty while the operation does not go back."""

    @property
    def rolling_back(self) -> bool:
        """Whether the operation goes back to what served before."""
        return self.cause is not None

    @property
    def phase_name(self) -> str:
        """Return the present phase with its direction: ``load``, ``roll-back load``."""
        return f"roll-back {self.phase}" if self.rolling_back else self.phase.value

    @property
    def changes_units(self) -> bool:
        """Whether the operation stops or starts anything: a switch to what serves does neither."""
        return bool(self.goal.stop or set(self.goal.start) - {*self.goal.kept})

    @property
    def ran(self) -> bool:
        """Whether the operation goes back because its command has ended, not because it failed."""
        return self.cause is Cause.COMMAND_ENDED

    @property
    def failed_starts(self) -> frozenset[str]:
        """Profiles that the operation was to start, where it goes back because of a failure."""
        return frozenset(self.goal.start if self.cause is Cause.FAILURE else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCaller:
    """Operator whose command an operation is to run, with the token for the launcher."""

    uid: int
    token: str = field(repr=False)
    """Random token; told to the operator alone, and not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """End of an operation: the closing part of its row."""

    operation: Operation
    outcome: Outcome
    message: str
    finished_unix_s: float
    cause: Cause | None = None
    """Cause for which the operation was refused, failed or rolled back; None: it was done,
    superseded or interrupted."""
    finished_s: float = 0.0
    """Seconds on the monotonic clock of the operation's boot; 0: in another boot, or not known."""
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds in each phase that was entered, roll-back included."""

    @property
    def total_ms(self) -> float:
        """Return the operation's milliseconds from begin to end, even if the clock was set."""
        if self.finished_s and self.operation.began_s:
            return (self.finished_s - self.operation.began_s) * 1000
        return (self.finished_unix_s - self.operation.began_unix_s) * 1000

    @property
    def failed(self) -> bool:
        """Whether the operation went wrong: not where it was refused, cancelled or overtaken."""
        rolled_back = self.outcome is Outcome.ROLLED_BACK and self.cause is Cause.FAILURE
        return rolled_back or self.outcome is Outcome.FAILED

    def age_s(self, *, now_s: float, now_unix_s: float, boot_id: str) -> float:
        """Return seconds since the end: by the monotonic clock; after a reboot, by wall clock."""
        if self.finished_s and self.operation.boot_id == boot_id:
            return now_s - self.finished_s
        return max(0.0, now_unix_s - self.finished_unix_s)


class PhaseState(StrEnum):
    STARTED = "started"
    PROGRESS = "progress"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
