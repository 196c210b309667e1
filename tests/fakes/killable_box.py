"""A real supervisor on a `FakeMachine`, in virtual time; it may be killed before any of its effects.

The ports are those of `tests.fakes.ports` and `tests.fakes.units`, but each effect may be the last one,
and is judged against the look that it follows from. Time passes in `FakeMachine.advance` alone, and a
supervisor that waits goes on only when `wake` is called.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from appliance.model.claims import NOTHING, Claim
from appliance.model.errors import ApplianceError, UnitError
from appliance.model.gateway import State
from appliance.model.observed import Observed
from appliance.model.operations import (
    Cause,
    Finished,
    HoldUntil,
    Kind,
    Operation,
    Outcome,
    has_run_out,
)
from appliance.settings.tables import Settings
from appliance.supervisor.operation_runner import Transaction
from appliance.supervisor.ownership import OperationRequest, Supervisor
from appliance.supervisor.unit_memory import UnitMemory
from appliance.switch.goals import in_the_way_of
from appliance.switch.preflight_facts import BoxFacts
from tests.fakes.clock import FakeClock
from tests.fakes.machine import A_HOLD, FakeMachine
from tests.fakes.ports import (
    FakeBackend,
    FakeCommitment,
    FakeGateway,
    FakeHost,
    FakePeaks,
    FakeRunTickets,
    FakeStore,
)
from tests.fakes.profiles import FakeProfiles
from tests.fakes.systemd_unit import AT_REST
from tests.fakes.units import FakeUnits

LOOK_EVERY_S: Final = 10.0
_TURN: Final = 3
"""Rounds of the loop in which a supervisor gets from a look to what follows from it, or not quite."""
_MOST_ROUNDS: Final = 50
"""Limit of rounds until a request is answered."""


class KilledError(Exception):
    """The supervisor dies here."""


class MachineLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is the machine's."""

    def __init__(self, machine: FakeMachine) -> None:
        super().__init__()
        self._machine = machine

    def time(self) -> float:
        return self._machine.now_s


class MachineChange:
    """Change since this was taken, the passing of time included."""

    def __init__(self, units: "JudgedUnits") -> None:
        self._units = units
        self._before = units.systemd.observed()
        self._taken_s = units.machine.now_s
        self._woken: asyncio.Future[None]
        self.is_of_operation = False
        """A running operation waits, and not the supervisor itself."""

    async def wait(self, timeout_s: float) -> bool:  # noqa: ARG002 - `wake` ends the wait
        self.is_of_operation = asyncio.current_task() is not self._units.box.task
        self._woken = asyncio.get_running_loop().create_future()
        self._units.awaited.append(self)
        try:
            await self._woken
        finally:
            self._units.awaited.remove(self)
        return True

    def wake(self) -> bool:
        """End the wait if anything is new."""
        is_due = self._units.machine.now_s > self._taken_s or self.has_happened()
        if is_due and not self._woken.done():
            self._woken.set_result(None)
        return is_due

    def has_happened(self) -> bool:
        return self._units.systemd.observed() != self._before


class JudgedUnits(FakeUnits):
    """The port `Units`."""

    def __init__(self, box: "KillableBox") -> None:
        super().__init__(box.machine.systemd)
        self.box = box
        self.machine = box.machine
        self.awaited: list[MachineChange] = []
        """Changes for which the supervisor, and its running operation, wait."""

    def change(self) -> MachineChange:
        return MachineChange(self)

    def look(self) -> Observed:
        """Return the observation that the present task uses: its last look, or its starter's."""
        return self.seen.get(asyncio.current_task(), self.latest)

    async def observe(self, names: Iterable[str], *, full: bool = False) -> Observed:
        seen = self.latest = self.seen[asyncio.current_task()] = self.systemd.observed(
            names, full=full
        )
        await asyncio.sleep(0)  # what is looked at may change before anything follows from it
        return seen

    async def start(self, name: str) -> None:
        seen, running = self.look(), self.box.running
        if rivals := [r for r in self.systemd.rivals[name] if not seen.unit(r).idle]:
            self.box.faults.append(f"{name} was started beside {rivals}")
        if seen.going_down:
            self.box.faults.append(f"{name} was started during a shutdown")
        if seen.hold_active and running is not None:
            operation = running.operation
            unasked = operation.kind is Kind.REPAIR or operation.rolling_back
            if unasked or running._steps.started:
                self.box.faults.append(f"{name} was started during a hold")
        self.box.effect(f"start {name}")
        self.systemd.reset_failed(name)
        self.systemd.start(name)

    async def stop(self, name: str) -> None:
        serves = self.look().unit(name).serving
        if serves and name not in self.box.gateway.held:
            self.box.faults.append(f"{name} was stopped under its requests")
        self.box.effect(f"stop {name}")
        self.systemd.stop(name, self.box.operation_name)

    async def start_run(self) -> None:
        running = self.box.running
        claim = Claim(devices=frozenset(running.operation.goal.claim)) if running else NOTHING
        seen = self.look()
        if any(not seen.unit(n).idle for n in in_the_way_of(claim, self.systemd.catalogue)):
            self.box.faults.append("a command was begun beside a rival")
        self.box.effect("start the command")
        self.machine.processes.command.claim = claim
        await super().start_run()

    async def stop_run(self) -> None:
        self.box.effect("stop the command")
        await super().stop_run()

    async def start_hold(self) -> None:
        self.box.effect("hold")
        self.machine.start_hold(A_HOLD)
        await self.hold_started()

    async def stop_hold(self) -> None:
        self.box.effect()
        self.box.forgive_hold()
        await super().stop_hold()


class JudgedGateway(FakeGateway):
    """The port `Gateway`: knows whose requests wait."""

    def __init__(self, box: "KillableBox") -> None:
        super().__init__()
        self._box = box
        self.held: frozenset[str] = frozenset()

    def route(self, state: State) -> None:
        self.held = state.held

    async def hold(self, names: Sequence[str]) -> str | None:
        self._box.effect("requests")
        self.held |= set(names)
        return None

    async def drain(self, names: Sequence[str], timeout_s: float) -> str | None:  # noqa: ARG002
        return None

    async def release(self, state: State) -> str | None:
        self.route(state)
        return None


class JudgedCommitment(FakeCommitment):
    """The port `Commitment`: tells the machine what a hold that ends has left stopped."""

    def __init__(self, box: "KillableBox", *names: str) -> None:
        super().__init__(*names)
        self._box = box

    async def commit(self, names: Iterable[str]) -> None:
        self._box.effect("commit")
        await super().commit(names)

    async def set_hold(self, until: HoldUntil) -> None:
        self._box.effect()
        before = self.until
        if until is None and self._box.running is None:
            self._box.forgive_hold()
        await super().set_hold(until)
        if before is not None and until is None and self._box.running is not None:
            self._box.hold_was_ended()


class JudgedStore(FakeStore):
    """The port `Store`: judges each end, and tells the machine which stops it accounts for."""

    def __init__(self, box: "KillableBox") -> None:
        super().__init__()
        self._box = box

    async def begin(self, operation: Operation) -> Operation:
        self._box.effect()
        self._box.touched = []
        if operation.kind is Kind.REPAIR:
            self._box.forgive_hold()
        return await super().begin(operation)

    def update(self, operation: Operation) -> None:
        self._box.effect()
        super().update(operation)

    async def finish(self, finished: Finished) -> None:
        self._box.effect()
        await super().finish(finished)
        self._box.judge(finished)

    def open(self) -> list[Operation]:
        """Operations that have not ended."""
        ended = {finished.operation.id for finished in self.ended}
        return [o for i, o in self.rows.items() if i not in ended]


class KillableBox:
    """A supervisor and its machine. What it is asked, and time, come from the test."""

    def __init__(self, machine: FakeMachine, *committed: str) -> None:
        self.machine = machine
        self.loop = MachineLoop(machine)
        self.units = JudgedUnits(self)
        self.gateway = JudgedGateway(self)
        self.backend = FakeBackend()
        self.commitment = JudgedCommitment(self, *committed)
        self.store = JudgedStore(self)
        self.peaks, self.tickets = FakePeaks(), FakeRunTickets()
        self.clock = FakeClock(machine.systemd)
        self.host = FakeHost(machine.processes)
        self.host.box_facts = BoxFacts(ram_total_bytes=1 << 40)
        self.fuse = -1
        """Effects until it dies; negative: it lives."""
        self.touched: list[str] = []
        """Names that the running operation has changed outside."""
        self.faults: list[str] = []
        """Forbidden acts that happened."""
        self.task: asyncio.Task[None] | None = None
        self.reborn()

    # --- life and death --------------------------------------------------------------

    def reborn(self) -> None:
        """End the process as SIGKILL would, and begin another one, which knows the disk alone."""
        self._bury()
        self._supervisor = Supervisor(
            FakeProfiles(self.machine.catalogue),
            units=self.units,
            memory=UnitMemory(self.units, self.clock),
            backend=self.backend,
            gateway=self.gateway,
            host=self.host,
            commitment=self.commitment,
            store=self.store,
            peaks=self.peaks,
            tickets=self.tickets,
            clock=self.clock,
            settings=Settings(look_every_s=LOOK_EVERY_S),
            on_look=lambda _line: None,
        )
        self.task = self.loop.create_task(self._supervisor.run())

    def close(self) -> None:
        """End the process and its loop."""
        self._bury()
        self.loop.close()

    def _bury(self) -> None:
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
            self.loop.run_until_complete(asyncio.wait({task}))
            _look_at_death(task)

    @property
    def has_died(self) -> bool:
        """Whether the process has ended by itself."""
        return self.task is not None and self.task.done()

    def effect(self, what: str = "") -> None:
        """Count a change outside; the supervisor dies when the fuse has burnt down."""
        if self.fuse == 0:
            self.fuse = -1
            raise KilledError
        self.fuse -= self.fuse > 0
        if what:
            self.touched.append(what)

    # --- turns -----------------------------------------------------------------------

    def turn(self) -> bool:
        """Let it go on for a moment; False: there is nothing to do but to wait."""
        woken = [change.wake() for change in self.units.awaited]
        self.spin(_TURN)
        # The supervisor may wait while its operation has something to do.
        runs = self.running is not None
        waits = any(change.is_of_operation == runs for change in self.units.awaited)
        return any(woken) or not waits

    def spin(self, rounds: int) -> None:
        """Run so many rounds of the loop; a process that has died is followed by another one."""
        self.loop.run_until_complete(_rounds(rounds))
        if self.has_died:
            self.reborn()

    def submit(self, kind: Kind, names: tuple[str, ...], **more: object) -> None:
        """Ask for an operation, unless one runs."""
        command = "command" if kind is Kind.RUN else ""
        request = OperationRequest(kind=kind, names=names, command=command, **more)  # type: ignore[arg-type]
        asked = self.loop.create_task(self._supervisor.submit(request))
        for _ in range(_MOST_ROUNDS):
            if asked.done() or self.has_died:
                break
            self.loop.run_until_complete(_rounds(1))
        asked.cancel()
        self.loop.run_until_complete(asyncio.wait({asked}))
        error = None if asked.cancelled() else asked.exception()
        if self.has_died or isinstance(error, KilledError):
            self.reborn()
        elif error is not None and not isinstance(error, ApplianceError):
            raise error

    def cancel(self) -> None:
        """Roll the running operation back, as long as that is possible."""
        self._supervisor.cancel(by="ana")

    # --- what the machine is told ------------------------------------------------------

    @property
    def running(self) -> Transaction | None:
        """The operation that this process has in hand."""
        running = self._supervisor.current()
        return None if running is None else running.transaction

    @property
    def operation(self) -> Operation | None:
        """The operation that has not ended, whether or not a process has it in hand."""
        return next(iter(self.store.open()), None)

    @property
    def operation_name(self) -> str:
        """Return the name of what stops units now."""
        running = self.running
        return "the supervisor" if running is None else f"operation {running.operation.id}"

    def forgive_hold(self) -> None:
        """Let profiles that a hold stopped come back once its time has passed."""
        if has_run_out(self.commitment.until, self.machine.now_s):
            for unit in self.machine.systemd.units.values():
                if unit.stop_cause == A_HOLD:
                    unit.stop_cause = ""

    def hold_was_ended(self) -> None:
        """Excuse idle units after a request ended a hold, which asks for no more than that."""
        for name, unit in self.machine.systemd.observed().units.items():
            if unit.idle:
                self.machine.systemd.units[name].stop_cause = "a hold that was ended"

    def judge(self, finished: Finished) -> None:
        """Judge the stopped profiles: only requests that were not undone may leave one stopped."""
        operation, outcome = finished.operation, finished.outcome
        if outcome is Outcome.REFUSED and self.touched:
            self.faults.append(f"refused ({finished.message}) after {self.touched}")
        unasked = operation.kind is Kind.REPAIR and finished.cause is not Cause.CANCELLED
        went_back = outcome is Outcome.ROLLED_BACK or (
            outcome is Outcome.DONE and operation.ran and operation.rollback
        )
        is_stop = operation.kind is Kind.STOP and outcome is Outcome.DONE
        for name, unit in self.machine.systemd.units.items():
            restored = went_back and name in operation.goal.restore
            if unit.stop_cause == f"operation {operation.id}" and (unasked or restored):
                unit.stop_cause = ""
            if is_stop and unit.state in AT_REST and name in (operation.target or (name,)):
                # systemd does not stop what has failed; whoever asked for the stop wants it down.
                unit.stop_cause = unit.stop_cause or f"operation {operation.id}"


async def _rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _look_at_death(task: asyncio.Task[None]) -> None:
    """A process may be killed, and ends when systemd does not obey; anything else is an error."""
    if task.cancelled() or (error := task.exception()) is None:
        return
    group = error if isinstance(error, BaseExceptionGroup) else BaseExceptionGroup("", [error])
    _expected, rest = group.split((KilledError, UnitError))
    if rest is not None:
        raise rest
