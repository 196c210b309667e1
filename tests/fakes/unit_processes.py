"""Processes of the units in virtual time: gates, wrappers and engines on GPUs, and the command's launcher.

Each part follows the program that it stands for (`launch.gate`, `launch.backend`, `launch.run`). A rule
can be broken, to see that it is missed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final

from appliance.model.claims import ALL_GPUS, Claim
from appliance.model.observed import EXIT_LEASE_HELD, RunReport
from tests.fakes.gpu_memory import FakeGpus
from tests.fakes.systemd import RUN, FakeSystemd
from tests.fakes.systemd_unit import UnitState

GATE_S: Final = 60.0
"""Deadline of gate and launcher, which wait for memory."""
_REFUSED: Final = 75
_LATE: Final = 255
_LATE_TEXT: Final = "the memory has not come back"


class BrokenRule(StrEnum):
    """A rule that is taken out."""

    NOTHING = "nothing"
    GATE = "gate"
    CONFLICTS = "conflicts"
    LEASE = "lease"


class Stage(Enum):
    """Progress of the processes of a unit."""

    NONE = auto()
    GATE = auto()
    """The gate has not looked yet."""
    CONDITION = auto()
    """The gate waits for memory."""
    WRAPPER = auto()
    """The main process has no lease yet; the launcher has no caller yet."""
    LAUNCHER = auto()
    """The launcher waits for memory."""
    STARTED = auto()
    """The lease is held."""
    LOADING = auto()
    """The memory is taken."""
    SERVING = auto()
    """The engine serves, or the command runs."""


_HOLDS_LEASE: Final = {Stage.STARTED, Stage.LOADING, Stage.SERVING}


@dataclass
class Behaviour:
    """Behaviour of one backend. Times are in seconds."""

    gate_s: float = 0.0
    """Seconds from the fork of the gate until it checks."""
    wrapper_s: float = 0.0
    """Seconds from the verdict of the gate until the lease is taken."""
    start_s: float = 0.0
    """Seconds from then until the engine takes its memory."""
    load_s: float = 3.0
    """Seconds from then until the engine is ready."""
    stop_s: float = 0.5
    release_s: float = 0.0
    """Seconds from the engine's end until its memory is back."""
    start_result: str = "success"
    """Other than success: the engine never becomes ready, with this result."""
    stops_badly: bool = False
    """Whether the backend exits with an error on SIGTERM."""
    refusal: str = ""
    """Sentence with which the gate refuses; empty: it does not."""


@dataclass
class Command:
    """Behaviour of the next command of an operator. Times are in seconds."""

    claim: Claim = field(default_factory=lambda: Claim(devices=frozenset({ALL_GPUS})))
    wait_s: float = 0.2
    """Seconds until the caller has connected."""
    run_s: float = 20.0
    stop_s: float = 0.5
    release_s: float = 0.0
    problem: str = ""
    """Reason why the command is not begun; empty: it is."""
    fails_to_start: bool = False
    """Whether the command's unit cannot be executed."""
    report: RunReport | None = None
    """Report of the launcher that ended last; None: it was killed, or runs."""


class UnitProcesses:
    """Processes of the units; `FakeSystemd` forks and signals them.

    Args:
        systemd: That system's.
        needs: GiB by GPU that each engine takes, which its gate waits for.
        gpus: Where.
        broken: Rule that is taken out.
    """

    def __init__(
        self,
        systemd: FakeSystemd,
        needs: Mapping[str, Mapping[int, int]] | None = None,
        gpus: FakeGpus | None = None,
        broken: BrokenRule = BrokenRule.NOTHING,
    ) -> None:
        self.systemd = systemd
        self.needs = needs or {}
        self.gpus = gpus or FakeGpus(16, 2)
        self.broken = broken
        self.behaviour = {name: Behaviour() for name in systemd.catalogue}
        self.command = Command()
        self.refusals: dict[str, str] = {}
        """Verdicts of the gates that refused last."""
        self.stages = dict.fromkeys(systemd.units, Stage.NONE)
        systemd.processes = self
        systemd.has_conflicts = broken is not BrokenRule.CONFLICTS

    def power_cut(self) -> None:
        """End everything; memory is free."""
        self.gpus.power_cut()
        self.refusals.clear()
        self.command.report = None
        self.stages = dict.fromkeys(self.stages, Stage.NONE)

    # --- what can be seen ------------------------------------------------------------

    def holders(self) -> list[str]:
        """Profiles whose engine runs and holds the lease."""
        return [name for name in self.systemd.catalogue if self.stages[name] in _HOLDS_LEASE]

    @property
    def command_runs(self) -> bool:
        """Whether the command, or what it left, holds its leases."""
        return self.stages[RUN] in _HOLDS_LEASE

    def command_shares_with(self) -> list[str]:
        """Holders of what the command has too."""
        return self._holders_in(self.command.claim) if self.command_runs else []

    def _holders_in(self, claim: Claim) -> list[str]:
        catalogue = self.systemd.catalogue
        return [name for name in self.holders() if catalogue[name].claim.intersects(claim)]

    # --- what happens to them by accident --------------------------------------------

    def crash(self, name: str, *, status: int = 1) -> None:
        """The engine ends by itself, unless it is being stopped."""
        if (
            self.systemd.units[name].state is not UnitState.STOP
            and self.stages[name] in _HOLDS_LEASE
        ):
            self.systemd.main_exited(name, status)

    def end_command(self, report: RunReport) -> None:
        """The command ends; what it has left gets SIGTERM."""
        if self.systemd.units[RUN].state is UnitState.RUNNING:
            self.command.report = report
            self.systemd.main_left(RUN)
            self.systemd.wake(RUN, self.command.stop_s)

    def kill_command(self) -> None:
        """SIGKILL for the launcher and for all that it has started."""
        self.command.report = None
        self.systemd.main_exited(RUN, signal=9)

    # --- what systemd does with them -------------------------------------------------

    def fork_condition(self, name: str) -> None:
        """Run the gate."""
        self.stages[name] = Stage.GATE
        self._wait(name, self.behaviour[name].gate_s)

    def fork_main(self, name: str) -> None:
        """Run the wrapper, or the launcher of a command."""
        self.stages[name] = Stage.WRAPPER
        if name != RUN:
            self.gpus.promise(name, self.needs.get(name, {}))
            self._wait(name, self.behaviour[name].wrapper_s)
            return
        self.command.report = None
        if self.command.fails_to_start:
            self.systemd.main_exited(RUN, 203)
        else:
            self._wait(name, self.command.wait_s)

    def terminate(self, name: str) -> None:
        """Send SIGTERM."""
        if self.stages[name] in _HOLDS_LEASE:
            how = self.command if name == RUN else self.behaviour[name]
            self.systemd.wake(name, how.stop_s)
        elif name == RUN:
            self._refuse_command("it was stopped")
        else:
            self.systemd.main_exited(name)

    def vanish(self, name: str) -> None:
        """Give back what the processes of a unit held."""
        release_s = self.command.release_s if name == RUN else self.behaviour[name].release_s
        self.stages[name] = Stage.NONE
        self.gpus.leave(name, self.systemd.now_s + release_s)
        self.gpus.give_back(self.systemd.now_s)

    def wake(self, name: str) -> None:
        """Take the next step."""
        if self.systemd.units[name].state is UnitState.STOP:
            self._stopped(name)
        elif name == RUN:
            self._command_goes_on()
        elif self.stages[name] is Stage.GATE:
            self.stages[name] = Stage.CONDITION
            self.systemd.wake(name, GATE_S)
        elif self.stages[name] is Stage.CONDITION:
            self.refusals[name] = _LATE_TEXT
            self.systemd.reset_failed(name)
            self.systemd.condition_exited(name, _LATE)
        elif self.stages[name] is Stage.WRAPPER and self._lease_is_held(name):
            self.systemd.main_exited(name, EXIT_LEASE_HELD)
        else:
            self._engine_goes_on(name)

    def poll(self) -> None:
        """Let the gates and the launcher look at leases and memory."""
        self.gpus.give_back(self.systemd.now_s)
        for name in self.systemd.catalogue:
            if self.stages[name] is Stage.CONDITION:
                self._look_through_gate(name)
        if self.stages[RUN] is Stage.LAUNCHER:
            self._look_for_command()

    def _wait(self, name: str, seconds: float) -> None:
        if seconds:
            self.systemd.wake(name, seconds)
        else:
            self.wake(name)

    # --- backends --------------------------------------------------------------------

    def _look_through_gate(self, name: str) -> None:
        if self.broken is not BrokenRule.GATE:
            held = "the claim is held" if self._lease_is_held(name) else ""
            if refusal := self.behaviour[name].refusal or held:
                self.refusals[name] = refusal
                self.systemd.reset_failed(name)
                self.systemd.condition_exited(name, _REFUSED)
                return
            if not self.gpus.fits(self.needs.get(name, {})):
                return
        self.refusals.pop(name, None)
        self.systemd.condition_exited(name, 0)

    def _lease_is_held(self, name: str) -> bool:
        if self.broken is BrokenRule.LEASE:
            return False
        by_command = self.command_runs and self.systemd.catalogue[name].claim.intersects(
            self.command.claim
        )
        return by_command or any(self.stages[r] in _HOLDS_LEASE for r in self.systemd.rivals[name])

    def _engine_goes_on(self, name: str) -> None:
        how = self.behaviour[name]
        match self.stages[name]:
            case Stage.WRAPPER:
                self.stages[name] = Stage.STARTED
                self._wait(name, how.start_s)
            case Stage.STARTED if self.gpus.allocate(name):
                self.stages[name] = Stage.LOADING
                self.systemd.notify(name, "loading: 1 s", loading=True)
                self.systemd.wake(name, how.load_s)
            case Stage.LOADING if how.start_result == "success":
                self.stages[name] = Stage.SERVING
                self.systemd.ready(name, "serving")
            case Stage.LOADING if how.start_result == "timeout":
                self.systemd.start_timed_out(name)
            case Stage.STARTED | Stage.LOADING:
                self.systemd.main_exited(name, 1)
            case stage:
                raise AssertionError(f"{name} was not expected to act in {stage}")

    def _stopped(self, name: str) -> None:
        if name != RUN:
            self.systemd.main_exited(name, int(self.behaviour[name].stops_badly))
            return
        self.command.report = self.command.report or RunReport(ran=True, text="with signal 15")
        self.systemd.main_exited(RUN)

    # --- the command -----------------------------------------------------------------

    def _command_goes_on(self) -> None:
        match self.stages[RUN]:
            case Stage.WRAPPER if self.command.problem:
                self._refuse_command(self.command.problem)
            case Stage.WRAPPER:
                self.stages[RUN] = Stage.LAUNCHER
                self.systemd.wake(RUN, GATE_S)
                self._look_for_command()
            case Stage.LAUNCHER:
                self._refuse_command(_LATE_TEXT)
            case _:
                self.end_command(RunReport(ran=True, text="with status 0 after 20 s"))

    def _look_for_command(self) -> None:
        claim = self.command.claim
        if self._holders_in(claim) and self.broken is not BrokenRule.LEASE:
            self._refuse_command("held by another")
        elif not self.gpus.is_haunted(claim) or self.broken is BrokenRule.GATE:
            self.stages[RUN] = Stage.SERVING
            self.gpus.take_all(RUN, claim)
            self.systemd.ready(RUN, "python3 of user ana")
            self.systemd.wake(RUN, self.command.run_s)

    def _refuse_command(self, reason: str) -> None:
        self.command.report = RunReport(ran=False, text=reason)
        self.systemd.main_exited(RUN)
