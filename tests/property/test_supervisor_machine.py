"""Property: after any acts of people, engines and deaths of the supervisor one owner is left."""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any, Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from appliance.model.claims import claim_on
from appliance.model.errors import BusyError
from appliance.model.operations import FOREVER, Kind
from appliance.settings.tables import Settings
from appliance.supervisor.ownership import OperationRequest, Supervisor
from appliance.switch.goals import in_the_way
from tests.fakes.profiles import FakeProfiles, applied, catalogue
from tests.fakes.supervisor_ports import FakePorts

BOX = catalogue(
    applied("both", "gpu-all"),
    applied("left", "gpu-0"),
    applied("right", "gpu-1"),
    applied("embedder"),
)
NAMES = st.sampled_from(sorted(BOX))

# Thousands of steps: on a busy machine they take longer than a usual test may.
pytestmark = pytest.mark.timeout(300)


class Box(RuleBasedStateMachine):
    """A box whose engines fail, lag and are handled by people behind our back."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.fakes = FakePorts(BOX, "both")
        self.fakes.units.patience = 10**9
        self.fakes.serve("both")
        self.task: asyncio.Task[None] | None = None
        self.supervisor: Supervisor | None = None
        self.boot_supervisor()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(work)

    def boot_supervisor(self) -> None:
        self.supervisor = self.fakes.supervisor(
            FakeProfiles(BOX), settings=Settings(look_every_s=10.0)
        )
        self.task = self.loop.create_task(self.supervisor.run())
        self.turns(3)

    def turns(self, count: int) -> None:
        async def spin() -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        self.run(spin())
        assert self.task is not None
        assert not self.task.done(), self.task.exception()

    @rule(
        kind=st.sampled_from([Kind.SWITCH, Kind.START, Kind.STOP, Kind.RESTART]),
        name=NAMES,
        rollback=st.booleans(),
    )
    def request(self, kind: Kind, name: str, rollback: bool) -> None:  # noqa: FBT001
        self.ask(kind, name, rollback=rollback)

    def ask(self, kind: Kind, name: str, *, rollback: bool) -> None:
        async def submit() -> None:
            assert self.supervisor is not None
            try:
                await self.supervisor.submit(
                    OperationRequest(kind=kind, names=(name,), rollback=rollback)
                )
            except BusyError:
                return

        self.run(submit())

    @rule(
        gpus=st.sampled_from(["all", (0,), (1,)]),
        problem=st.sampled_from(["", "", "the caller closed the connection"]),
        run_s=st.sampled_from([0.1, 30.0]),
        count=st.integers(1, 60),
    )
    def run_a_command(
        self, gpus: Literal["all"] | tuple[int, ...], problem: str, run_s: float, count: int
    ) -> None:
        async def submit() -> None:
            assert self.supervisor is not None
            command = self.fakes.processes.command
            try:
                await self.supervisor.submit(
                    OperationRequest(kind=Kind.RUN, command="python3", claim=claim_on(gpus))
                )
            except BusyError:
                return
            command.claim, command.problem, command.run_s = claim_on(gpus), problem, run_s

        self.run(submit())
        self.turns(count)

    @rule()
    def kill_the_launcher(self) -> None:
        self.fakes.processes.kill_command()
        self.fakes.units.version += 1

    @rule(name=NAMES, count=st.integers(1, 60))
    def switch(self, name: str, count: int) -> None:
        self.ask(Kind.SWITCH, name, rollback=True)
        self.turns(count)

    @rule(until=st.sampled_from([FOREVER, 30.0]))
    def hold(self, until: float | str) -> None:
        async def submit() -> None:
            assert self.supervisor is not None
            end = until if isinstance(until, str) else self.fakes.systemd.now_s + until
            try:
                await self.supervisor.submit(OperationRequest(kind=Kind.HOLD, hold_until=end))
            except BusyError:
                return

        self.run(submit())

    @rule()
    def cancel(self) -> None:
        assert self.supervisor is not None
        self.supervisor.cancel(by="ana")

    @rule(count=st.integers(1, 60))
    def wait(self, count: int) -> None:
        self.turns(count)

    @rule(name=NAMES)
    def start_by_hand(self, name: str) -> None:
        self.fakes.systemd.start(name)
        self.fakes.units.version += 1

    @rule(name=NAMES)
    def stop_by_hand(self, name: str) -> None:
        self.fakes.systemd.stop(name)
        self.fakes.units.version += 1

    @rule(name=NAMES, status=st.sampled_from([0, 1]))
    def crash(self, name: str, status: int) -> None:
        self.fakes.processes.crash(name, status=status)
        self.fakes.units.version += 1

    @rule(name=NAMES)
    def give_up(self, name: str) -> None:
        if not self.fakes.systemd.units[name].main_pid:
            self.fakes.systemd.start_limit_hit(name)

    @rule(name=NAMES, result=st.sampled_from(["success", "exit-code", "timeout"]))
    def bend_start(self, name: str, result: str) -> None:
        self.fakes.processes.behaviour[name].start_result = result

    @rule(name=NAMES, refusal=st.sampled_from(["", "held by another"]))
    def bend_gate(self, name: str, refusal: str) -> None:
        self.fakes.processes.behaviour[name].refusal = refusal

    @rule(name=NAMES, cold=st.booleans(), badly=st.booleans(), lag_s=st.sampled_from([0.0, 9.0]))
    def bend_engine(self, name: str, cold: bool, badly: bool, lag_s: float) -> None:  # noqa: FBT001
        (self.fakes.backend.cold.add if cold else self.fakes.backend.cold.discard)(name)
        self.fakes.processes.behaviour[name].stops_badly = badly
        self.fakes.processes.behaviour[name].stop_s = lag_s

    @rule(full=st.booleans(), failing=st.booleans())
    def fill_the_disk(self, full: bool, failing: bool) -> None:  # noqa: FBT001
        self.fakes.commitment.full, self.fakes.commitment.failing = full, failing

    @rule()
    def kill_the_supervisor(self) -> None:
        self.bury()
        self.boot_supervisor()

    @rule()
    def settle(self) -> None:
        """Left alone, every operation ends and every unit comes to rest."""
        for how in self.fakes.processes.behaviour.values():
            how.start_result, how.refusal = "success", ""
        self.fakes.backend.cold.clear()
        self.fakes.commitment.full = self.fakes.commitment.failing = False
        for _ in range(60):
            self.turns(25)
            if self.at_rest():
                return
        raise AssertionError(f"{self.fakes.systemd.observed(BOX)} is not at rest")

    def at_rest(self) -> bool:
        assert self.supervisor is not None
        units = self.fakes.systemd.observed(BOX).units.values()
        idle = self.supervisor.current() is None and self.fakes.systemd.observed().run.idle
        return idle and all(u.idle or u.serving for u in units)

    @invariant()
    def one_owner(self) -> None:
        owners = self.fakes.processes.holders()
        for a, b in itertools.combinations(owners, 2):
            assert b not in in_the_way(a, BOX), owners

    @invariant()
    def a_command_is_alone(self) -> None:
        assert self.fakes.processes.command_shares_with() == []

    @invariant()
    def never_started_beside_a_rival(self) -> None:
        assert self.fakes.units.rivals_at_start == []

    @invariant()
    def committed_names_can_run_together(self) -> None:
        for a, b in itertools.combinations(self.fakes.commitment.names, 2):
            assert b not in in_the_way(a, BOX), self.fakes.commitment.names

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.bury()
            self.loop.close()

    def bury(self) -> None:
        """End the supervisor as SIGKILL would: whatever it was doing stays undone."""

        async def end() -> None:
            assert self.task is not None
            self.task.cancel()
            await asyncio.wait({self.task})

        self.run(end())


TestBox = Box.TestCase
TestBox.settings = settings(
    max_examples=2 * settings().max_examples, stateful_step_count=50, deadline=None
)
