"""Does what the planner says, one action at a time, on a `World`; may be killed between any two.

The same steps as `supervisor.operation_runner` and `supervisor.reconciler`, without asyncio: what they keep on
disk is kept here, what they keep in memory is lost with `reborn`.
"""

from dataclasses import replace
from typing import Final, assert_never

from appliance.domain.claims import NOTHING, Claim
from appliance.domain.errors import ApplianceError, BackendError, StoreError
from appliance.domain.observed import Observed
from appliance.domain.operations import (
    Cause,
    Finished,
    HoldUntil,
    Kind,
    Operation,
    Outcome,
    Phase,
    has_run_out,
)
from appliance.planning.admission.preflight import BoxFacts, findings, refusal
from appliance.planning.admission.run import run_findings
from appliance.planning.routing.gateway_state import state_of
from appliance.planning.switch.actions import (
    Action,
    BeginRestore,
    BeginRollback,
    Check,
    Commit,
    DrainRequests,
    Finish,
    HoldRequests,
    Start,
    StartRun,
    Steps,
    Stop,
    StopRun,
    Wait,
    WarmUpModel,
)
from appliance.planning.switch.goals import Writes, goal_of, in_the_way_of, writes_of
from appliance.planning.switch.next_action import next_action, reverse_operation
from appliance.planning.switch.repair import WINDOW_S, left_by_hold, to_repair
from tests.fakes.disk import Disk
from tests.fakes.gpu_readings import by_index, card
from tests.fakes.world import World

LOOK_AGAIN_S: Final = 1.0
TEND_S: Final = 10.0
A_HOLD: Final = "a hold"


class KilledError(Exception):
    """The supervisor dies here."""


class Hands:
    """The supervisor's hands. `look` decides, `act` does it."""

    def __init__(self, world: World, disk: Disk) -> None:
        self.world = world
        self.disk = disk
        self.cold: set[str] = set()
        """Engines that answer no request."""
        self.fuse = -1
        """Effects until it dies; negative: it lives."""
        self.touched: list[str] = []
        """What the running operation has changed outside."""
        self.faults: list[str] = []
        """What must never be done and was."""
        self.reborn()

    def reborn(self) -> None:
        """A new process: it knows the disk alone."""
        self.operation: Operation | None = None
        self.steps = Steps()
        self.seen = self.world.observed()
        self.pending: Action | None = None
        self.cancelled = self.hold_seen = False
        row = self.disk.row
        if row is not None and row.boot_id == self.boot_id:
            self.operation = row
        elif row is not None:
            self._close(row, Outcome.INTERRUPTED, "cut by a reboot")

    @property
    def boot_id(self) -> str:
        """Of this boot of the box."""
        return f"boot-{self.world.boot}"

    # --- requests --------------------------------------------------------------------

    def submit(
        self,
        kind: Kind,
        names: tuple[str, ...],
        *,
        rollback: bool = True,
        hold_until: HoldUntil = None,
        claim: Claim = NOTHING,
    ) -> None:
        """Begin an operation, unless one runs."""
        if self.operation is not None:
            return
        observed = self.world.observed()
        goal = goal_of(
            kind,
            names,
            catalogue=self.world.catalogue,
            observed=observed,
            committed=self.disk.committed,
            hold_until=hold_until,
            claim=claim,
        )
        self.operation = self.disk.row = Operation(
            id=len(self.disk.ended) + 1,
            kind=kind,
            target=("command",) if kind is Kind.RUN else names,
            goal=goal,
            boot_id=self.boot_id,
            requested_by="test",
            began_unix_s=self.world.now_s,
            rollback=rollback,
        )
        if kind is Kind.REPAIR:
            for name in names:
                self.disk.repairs.setdefault(name, []).append(self.world.now_s)
        self.steps, self.cancelled, self.pending = Steps(), False, None
        self.touched = []

    def cancel(self) -> None:
        """Turn the running operation round, as long as that is possible."""
        if self.operation and not self.operation.rolling_back and not self.steps.committed:
            self.cancelled = True

    # --- one turn --------------------------------------------------------------------

    def turn(self) -> bool:
        """Look and act once, and be born again after a kill; False: nothing to do but to wait."""
        try:
            self.look()
            return self.act()
        except KilledError:
            self.reborn()
        return True

    def look(self) -> None:
        """Observe and decide."""
        self.seen = self.world.observed()
        if self.operation is None:
            return
        refusals = dict(self.world.refusals) if self.steps.started else {}
        run_started = self.steps.run_started or not self.seen.run.idle
        self.steps = replace(self.steps, cancelled=self.cancelled, run_started=run_started)
        self.pending = next_action(
            self.operation,
            self.steps,
            self.seen,
            self.world.catalogue,
            refusals,
            report=self.world.command.report if self.seen.run.idle else None,
        )

    def act(self) -> bool:
        """Do what was decided, or tend the box; False: there is nothing to do but to wait."""
        if self.operation is None:
            return self._tend()
        action, self.pending = self.pending, None
        if action is None:
            return True
        try:
            return self._do(self.operation, action)
        except ApplianceError as error:
            self.steps = replace(self.steps, failure=str(error))
        return True

    def _effect(self, what: str = "") -> None:
        """Something outside is about to change; dies when the fuse has burnt down."""
        if self.fuse == 0:
            self.fuse = -1
            raise KilledError
        self.fuse -= self.fuse > 0
        if what:
            self.touched.append(what)

    def _do(self, operation: Operation, action: Action) -> bool:  # noqa: C901 - one case an action
        match action:
            case Check():
                self._check(operation)
            case HoldRequests():
                self._enter(Phase.HOLD)
                self._effect("requests")
                self.steps = replace(self.steps, held=True)
            case DrainRequests():
                self._enter(Phase.DRAIN)
                self.steps = replace(self.steps, drained=True)
            case Stop() | Start() | StartRun() | StopRun():
                self._queue(operation, action)
            case WarmUpModel(name):
                self._warm_up(name)
            case Commit():
                self._commit(operation)
            case BeginRollback(reason, cause):
                self._reverse(operation, cause, reason)
            case BeginRestore(reason):
                self._reverse(operation, Cause.COMMAND_ENDED, reason)
            case Wait(phase, _):
                self._enter(phase)
                return False
            case Finish(outcome, message, cause):
                self._effect()
                self._close(operation, outcome, message, cause)
            case never:
                assert_never(never)
        return True

    def _reverse(self, operation: Operation, cause: Cause, reason: str) -> None:
        self._effect()
        self.operation = self.disk.row = reverse_operation(operation, self.steps, cause, reason)
        self.steps = Steps(held=True, drained=True)

    def _queue(self, operation: Operation, action: Stop | Start | StartRun | StopRun) -> None:
        steps = self.steps
        match action:
            case Stop(name):
                self._enter(Phase.STOP)
                self._look_at_requests(name)
                self._effect(f"stop {name}")
                self.world.stop(name, f"operation {operation.id}")
                self.steps = replace(steps, stopped=steps.stopped | {name})
            case Start(name):
                self._enter(Phase.RELEASE)
                self._start(operation, name)
                self.steps = replace(steps, started=steps.started | {name})
            case StartRun():
                self._enter(Phase.RELEASE)
                self._start_run(Claim(devices=frozenset(operation.goal.claim)))
                self.steps = replace(steps, run_started=True)
            case StopRun():
                self._enter(Phase.STOP)
                self._effect("stop the command")
                self.world.stop_run()
                self.steps = replace(steps, run_stopped=True)

    def _look_at_requests(self, name: str) -> None:
        """Whoever asks for what is about to be stopped has to wait."""
        told = state_of(
            self.world.catalogue,
            self.seen,
            self.disk.committed,
            self.operation,
            started=self.steps.started,
        )
        if name not in told.held:
            self.faults.append(f"{name} was stopped under its requests")

    def _enter(self, phase: Phase) -> None:
        if self.operation and self.operation.phase is not phase:
            self._effect()
            self.operation = self.disk.row = replace(self.operation, phase=phase)

    def _check(self, operation: Operation) -> None:
        kind, goal = operation.kind, operation.goal
        box = BoxFacts(ram_total_bytes=1 << 40, devices=by_index(card(0), card(1)))
        found = findings(
            kind,
            goal,
            catalogue=self.world.catalogue,
            observed=self.seen,
            marks={},
            facts={},
            box=box,
        )
        refused = refusal((*found, *run_findings(kind, goal, self.seen, box)))
        if not refused:
            try:
                self.disk.reserve(writes_of(operation, self.disk.committed))
            except StoreError as error:
                refused = str(error)
        self.steps = replace(self.steps, checked=True, failure=refused)

    def _warm_up(self, name: str) -> None:
        self._enter(Phase.WARM_UP)
        if name in self.cold:
            raise BackendError("no answer")
        self.steps = replace(self.steps, warm=self.steps.warm | {name})

    def _start(self, operation: Operation, name: str) -> None:
        rivals = [r for r in self.world.rivals[name] if not self.seen.unit(r).idle]
        if rivals:
            self.faults.append(f"{name} was started beside {rivals}")
        if self.seen.going_down:
            self.faults.append(f"{name} was started during a shutdown")
        ours = operation.kind is Kind.REPAIR or operation.rolling_back or self.steps.started
        if self.seen.hold_active and ours:
            self.faults.append(f"{name} was started during a hold")
        self.world.reset_failed(name)
        self._effect(f"start {name}")
        self.world.start(name)

    def _start_run(self, claim: Claim) -> None:
        rivals = in_the_way_of(claim, self.world.catalogue)
        if any(not self.seen.unit(name).idle for name in rivals):
            self.faults.append("a command was begun beside a rival")
        self._effect("start the command")
        self.world.start_run(claim)

    def _commit(self, operation: Operation) -> None:
        self._enter(Phase.COMMIT)
        disk = self.disk
        if operation.rolling_back:
            over = has_run_out(disk.hold_until, self.world.now_s)
            if disk.hold_until is not None and not over and not self.seen.hold_active:
                self._effect("hold")
                self.world.start_hold(A_HOLD)
        else:
            self._write(writes_of(operation, disk.committed))
        self.steps = replace(self.steps, committed=True)

    def _write(self, writes: Writes) -> None:
        disk, before = self.disk, (self.disk.committed, self.disk.hold_until)
        try:
            if writes.names is not None:
                self._effect("commit")
                disk.commit(writes.names)
            if writes.sets_hold:
                self._effect()
                self._forget_hold(writes.hold)
            if writes.hold is not None:
                self._effect("hold")
                self.world.start_hold(A_HOLD)
        except ApplianceError:
            disk.committed, disk.hold_until = before
            raise

    def _forget_hold(self, instead: HoldUntil) -> None:
        """Whoever ends a hold by asking for something has asked for no more than that."""
        until = self.disk.hold_until
        self.disk.set_hold(instead)
        if until is not None and instead is None:
            for name, unit in self.seen.units.items():
                if unit.idle:
                    self.world.why_idle[name] = "a hold that was ended"

    def _close(
        self, operation: Operation, outcome: Outcome, message: str, cause: Cause | None = None
    ) -> None:
        if outcome is Outcome.REFUSED and self.touched:
            self.faults.append(f"refused ({message}) after {self.touched}")
        self.disk.reserved = Writes()
        self.disk.ended.append(
            Finished(
                operation=operation,
                outcome=outcome,
                message=message,
                finished_unix_s=self.world.now_s,
            )
        )
        self.operation = self.disk.row = None
        self._answer_for(operation, outcome, cause)

    def _answer_for(self, operation: Operation, outcome: Outcome, cause: Cause | None) -> None:
        """What was asked for may leave a profile stopped; what was undone or unasked may not."""
        unasked = operation.kind is Kind.REPAIR and cause is not Cause.CANCELLED
        for name, why in list(self.world.why_idle.items()):
            went_back = outcome is Outcome.ROLLED_BACK or (
                outcome is Outcome.DONE and operation.ran and operation.rollback
            )
            restored = went_back and name in operation.goal.restore
            if why == f"operation {operation.id}" and (unasked or restored):
                del self.world.why_idle[name]

    # --- nobody asked ----------------------------------------------------------------

    def _tend(self) -> bool:
        """As `supervisor.reconciler`; True: an operation has begun."""
        if self.seen.going_down or not self.seen.run.idle:
            return False
        names = self._wanted(self.seen)
        if names:
            self._effect()
            self.submit(Kind.REPAIR, names)
        return bool(names)

    def _wanted(self, observed: Observed) -> tuple[str, ...]:
        disk, now = self.disk, self.world.now_s
        attempts = {n: [t for t in ts if t > now - WINDOW_S] for n, ts in disk.repairs.items()}
        left: tuple[str, ...] = ()
        if isinstance(disk.hold_until, float) and disk.hold_until <= now:
            left = left_by_hold(
                disk.hold_until,
                committed=disk.committed,
                observed=observed,
                catalogue=self.world.catalogue,
                attempts=attempts,
            )
            self._end_hold(observed, left)
        else:
            self._keep_hold(observed)
        return to_repair(
            committed=disk.committed,
            observed=observed,
            catalogue=self.world.catalogue,
            refusals=self.world.refusals,
            attempts=attempts,
            now_unix_s=now,
            left=left,
        )

    def _end_hold(self, observed: Observed, left: tuple[str, ...]) -> None:
        """The hold's file is kept until what it stopped is back."""
        why_idle = self.world.why_idle
        for name in [n for n, why in why_idle.items() if why == A_HOLD]:
            del why_idle[name]
        if observed.hold_active:
            self._effect()
            self.world.hold_active = False
        elif not left:
            self._effect()
            self.disk.hold_until, self.hold_seen = None, False

    def _keep_hold(self, observed: Observed) -> None:
        if observed.hold_active:
            self.hold_seen = True
        elif self.disk.hold_until is not None and (self.hold_seen or observed.busy()):
            self._effect()
            self.disk.hold_until, self.hold_seen = None, False
        elif self.disk.hold_until is not None:
            self._effect()
            self.world.start_hold(A_HOLD)
