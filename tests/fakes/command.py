"""The unit that runs a command of an operator, and its launcher, in virtual time."""

from dataclasses import dataclass, field, replace

from appliance.domain.claims import Claim, claim_on
from appliance.domain.observed import ActiveState, ObservedUnit, RunReport

NEVER = float("inf")
IDLE = ObservedUnit()


@dataclass
class FakeCommand:
    """Fake of the next command: its behaviour and its state. Times are in seconds."""

    claim: Claim = field(default_factory=lambda: claim_on("all"))
    wait_s: float = 0.2
    """Until the caller has connected and the claim is free."""
    run_s: float = 20.0
    stop_s: float = 0.5
    problem: str = ""
    """Not empty: it is not begun, for this reason."""
    fails_to_start: bool = False
    """Whether the command's unit cannot be executed."""
    unit: ObservedUnit = IDLE
    due_s: float = NEVER
    report: RunReport | None = None

    @property
    def holds(self) -> bool:
        """Whether it has its leases."""
        return self.unit.serving or (
            self.unit.active is ActiveState.DEACTIVATING and self.unit.main_pid != 0
        )

    def start(self, now_s: float) -> None:
        """Run the start job."""
        if not self.unit.idle:
            return
        if self.fails_to_start:
            self.unit = ObservedUnit(
                active=ActiveState.FAILED, sub="failed", result="exit-code", exit_status=203
            )
            return
        self.report = None
        self.unit = ObservedUnit(active=ActiveState.ACTIVATING, sub="start", has_job=True)
        self.due_s = now_s + self.wait_s

    def stop(self, now_s: float) -> None:
        """Run the stop job: every process of the command gets SIGTERM."""
        if self.unit.active is ActiveState.ACTIVATING:
            self._end(RunReport(ran=False, text="it was stopped"))
        elif self.unit.serving:
            self._wind_down(RunReport(ran=True, text="with signal 15"), now_s)

    def kill(self) -> None:
        """SIGKILL for the launcher, and for what it leaves."""
        if not self.unit.idle:
            self.report, self.due_s = None, NEVER
            self.unit = ObservedUnit(
                active=ActiveState.FAILED, sub="failed", result="signal", exit_status=9
            )

    def happen(self, now_s: float, *, blocked: bool) -> None:
        """Let due events happen; `blocked`: another process has the leases."""
        self.due_s = NEVER
        if self.unit.active is ActiveState.DEACTIVATING:
            self.unit = IDLE
        elif self.unit.serving:
            self._wind_down(RunReport(ran=True, text="with status 0 after 20 s"), now_s)
        elif problem := self.problem or ("held by another" if blocked else ""):
            self._end(RunReport(ran=False, text=problem))
        else:
            self.unit = ObservedUnit(
                active=ActiveState.ACTIVE,
                sub="running",
                main_pid=77,
                status_text="python3 of user ana",
            )
            self.due_s = now_s + self.run_s

    def _wind_down(self, report: RunReport, now_s: float) -> None:
        self.report = report
        self.unit = replace(self.unit, active=ActiveState.DEACTIVATING, sub="stop-sigterm")
        self.due_s = now_s + self.stop_s

    def _end(self, report: RunReport) -> None:
        self.report, self.unit, self.due_s = report, IDLE, NEVER
