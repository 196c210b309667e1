"""The lives of a backend's unit and of the unit that runs a command, and how D-Bus shows them."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from appliance.domain.claims import NOTHING, Claim
from appliance.domain.observed import ActiveState, ObservedUnit, RunReport
from tests.fakes.cards import NEVER


class Life(Enum):
    """Where a unit stands."""

    IDLE = auto()
    FAILED = auto()
    QUEUED = auto()
    """Waits for others to stop."""
    GATE = auto()
    WRAPPER = auto()
    STARTING = auto()
    """Has the lease."""
    LOADING = auto()
    """Has its memory."""
    SERVING = auto()
    STOPPING = auto()
    PAUSED = auto()
    """systemd starts it again later."""


_RUNS: Final = {Life.STARTING, Life.LOADING, Life.SERVING, Life.STOPPING}
_WANTED: Final = {Life.QUEUED, Life.GATE, Life.WRAPPER, Life.STARTING, Life.LOADING, Life.SERVING}


@dataclass
class Behaviour:
    """Behaviour of one backend. Times are in seconds."""

    load_s: float = 4.0
    stop_s: float = 0.5
    release_s: float = 0.0
    """From its end until its memory is back."""
    crashes_loading: bool = False
    stops_badly: bool = False
    """Whether the backend exits with an error on SIGTERM."""


@dataclass
class Command:
    """appliance-run.service: a command that has a claim, and memory on the GPUs in it."""

    life: Life = Life.IDLE
    claim: Claim = NOTHING
    due_s: float = NEVER
    killed: bool = False
    report: RunReport | None = None


@dataclass
class Unit:
    """One backend unit."""

    life: Life = Life.IDLE
    due_s: float = NEVER
    alone: bool = False
    """Started with ignore-dependencies."""
    again: bool = False
    """A start is queued behind the stop, or behind the pause."""
    result: str = "success"
    exit_status: int = 0
    starts: list[float] = field(default_factory=list)

    @property
    def runs(self) -> bool:
        """Whether it has an engine process, which holds the lease."""
        return self.life in _RUNS

    @property
    def is_wanted(self) -> bool:
        """Whether it is up, or on its way up."""
        return self.life in _WANTED or self.again


def has_claim(command: Command) -> bool:
    """Whether it holds the leases."""
    return command.life in {Life.SERVING, Life.STOPPING}


def shown_command(command: Command) -> ObservedUnit:
    """Return the command's unit as D-Bus reports it."""
    active, sub = _STATES[command.life]
    return ObservedUnit(
        active=active,
        sub=sub,
        has_job=command.life in {Life.GATE, Life.STOPPING},
        result="signal" if command.killed else "success",
        main_pid=int(command.life is not Life.IDLE),
    )


_STATES: Final = {
    Life.IDLE: (ActiveState.INACTIVE, "dead"),
    Life.FAILED: (ActiveState.FAILED, "failed"),
    Life.QUEUED: (ActiveState.INACTIVE, "dead"),
    Life.GATE: (ActiveState.ACTIVATING, "condition"),
    Life.WRAPPER: (ActiveState.ACTIVATING, "start"),
    Life.STARTING: (ActiveState.ACTIVATING, "start"),
    Life.LOADING: (ActiveState.ACTIVATING, "start"),
    Life.SERVING: (ActiveState.ACTIVE, "running"),
    Life.STOPPING: (ActiveState.DEACTIVATING, "stop-sigterm"),
    Life.PAUSED: (ActiveState.ACTIVATING, "auto-restart"),
}


def shown(unit: Unit) -> ObservedUnit:
    """Return the unit as D-Bus reports it."""
    active, sub = _STATES[unit.life]
    told = unit.life in {Life.FAILED, Life.PAUSED}
    return ObservedUnit(
        active=active,
        sub=sub,
        has_job=unit.again or unit.life in _WANTED - {Life.SERVING} or unit.life is Life.STOPPING,
        result=unit.result if told else "success",
        exit_status=unit.exit_status if told else 0,
        main_pid=int(unit.life is Life.WRAPPER or unit.runs),
        loading=unit.life is Life.LOADING,
    )
