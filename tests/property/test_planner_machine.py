"""A supervisor against a box where anything may happen at any moment, in virtual time."""

import contextlib
import sys
from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from appliance.model.claims import Claim
from appliance.model.errors import UnitError
from appliance.model.observed import RunReport
from appliance.model.operations import FOREVER, Kind
from tests.fakes.clock import NEVER
from tests.fakes.gpu_memory import FakeGpus
from tests.fakes.killable_box import LOOK_EVERY_S, KillableBox
from tests.fakes.machine import FakeMachine
from tests.fakes.profiles import applied, catalogue
from tests.fakes.systemd import RUN
from tests.fakes.systemd_unit import UnitState
from tests.fakes.unit_processes import BrokenRule

BOX: Final = catalogue(
    applied("both", "gpu-all"),
    applied("left", "gpu-0"),
    applied("other", "gpu-all"),
    applied("right", "gpu-1"),
    applied("shared"),
)
NEEDS: Final = {"both": {0: 13, 1: 13}, "other": {0: 15, 1: 9}, "left": {0: 12}, "right": {1: 12}}
"""GiB, by GPU: no two owners fit at once."""
GPU_GIB: Final = 16

LOOK_AGAIN_S: Final = 1.0
NAMES: Final = st.sampled_from(sorted(BOX))
TARGETS: Final = st.sampled_from([("both",), ("left",), ("other",), ("left", "right"), ("shared",)])
OPERATION_S: Final = 600.0
"""However it goes: two directions, of two slow stops, two patient gates and two slow loads."""
SETTLED_S: Final = 4000.0
"""The longest pause between two repairs, several times."""

# A process that dies while a request is taken has made what it can no longer run.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine 'Supervisor._live' was never awaited")


class Box(RuleBasedStateMachine):
    """A box whose owner, engines, driver and power supply are all unreliable."""

    broken: BrokenRule = BrokenRule.NOTHING
    needs: Mapping[str, Mapping[int, int]] = NEEDS

    def __init__(self) -> None:
        super().__init__()
        self.machine = FakeMachine(BOX, self.needs, FakeGpus(GPU_GIB, 2), self.broken)
        self.box = KillableBox(self.machine, "both", "shared")
        self.machine.power_up(("both", "shared"), hold=False)
        self.wait(60.0)

    # --- the supervisor --------------------------------------------------------------

    @rule(count=st.integers(1, 12))
    def work(self, count: int) -> None:
        for _ in range(count):
            if not self.box.turn():
                self.machine.advance(self.machine.now_s + LOOK_AGAIN_S)

    @rule(rounds=st.integers(1, 6))
    def stop_between_look_and_act(self, rounds: int) -> None:
        self.box.spin(rounds)

    @rule()
    def kill(self) -> None:
        self.box.reborn()

    @rule(effects=st.integers(0, 6))
    def kill_soon(self, effects: int) -> None:
        self.box.fuse = effects

    @rule(names=TARGETS)
    def switch(self, names: tuple[str, ...]) -> None:
        self.box.submit(Kind.SWITCH, names)

    @rule(
        kind=st.sampled_from([Kind.SWITCH, Kind.START, Kind.STOP, Kind.RESTART]),
        names=TARGETS | st.just(()),
        rollback=st.booleans(),
    )
    def request(self, kind: Kind, names: tuple[str, ...], rollback: bool) -> None:  # noqa: FBT001
        if names or kind is not Kind.SWITCH:
            self.box.submit(kind, names, rollback=rollback)

    @rule(for_s=st.sampled_from([None, 30.0]))
    def hold(self, for_s: float | None) -> None:
        until = FOREVER if for_s is None else self.machine.now_s + for_s
        self.box.submit(Kind.HOLD, (), hold_until=until)

    @rule(device=st.sampled_from(["gpu-all", "gpu-0", "cpu"]), rollback=st.booleans())
    def run_a_command(self, device: str, rollback: bool) -> None:  # noqa: FBT001
        claim = Claim(devices=frozenset({device}))
        self.box.submit(Kind.RUN, (), rollback=rollback, claim=claim)

    @rule(killed=st.booleans())
    def end_the_command(self, killed: bool) -> None:  # noqa: FBT001
        if self.machine.systemd.units[RUN].state is not UnitState.RUNNING:
            return
        if killed:
            self.machine.processes.kill_command()
        else:
            self.machine.processes.end_command(RunReport(ran=True, text="with status 0"))

    @rule()
    def cancel(self) -> None:
        self.box.cancel()

    # --- people ----------------------------------------------------------------------

    @rule(name=NAMES, alone=st.booleans())
    def start_by_hand(self, name: str, alone: bool) -> None:  # noqa: FBT001
        with contextlib.suppress(UnitError):
            self.machine.systemd.start(name, alone=alone)

    @rule(name=NAMES)
    def stop_by_hand(self, name: str) -> None:
        self.machine.systemd.stop(name)

    @rule(active=st.booleans())
    def hold_by_hand(self, active: bool) -> None:  # noqa: FBT001
        with contextlib.suppress(UnitError):
            if active:
                self.machine.start_hold("a hold by hand")
            else:
                self.machine.systemd.stop_hold()

    @rule(index=st.sampled_from([0, 1]), amount=st.sampled_from([0, 2, 16]))
    def use_a_gpu(self, index: int, amount: int) -> None:
        self.machine.gpus.grab(index, amount)

    # --- machines --------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.05, 1.0, 7.0, 61.0]))
    def wait(self, seconds: float) -> None:
        end_s = self.machine.now_s + seconds
        while self.machine.advance(end_s):
            pass

    @rule(which=st.integers(0, 3), for_good=st.booleans(), again=st.booleans())
    def crash(self, which: int, for_good: bool, again: bool) -> None:  # noqa: FBT001
        """One that runs crashes: once, or until systemd gives up; its next loads may crash too."""
        processes = self.machine.processes
        for name in processes.holders()[which:][:1]:
            if again:
                processes.behaviour[name].start_result = "exit-code"
            if for_good and self.machine.systemd.units[name].state is UnitState.RUNNING:
                self.machine.systemd.start_limit_hit(name)
            else:
                processes.crash(name)

    @rule(name=NAMES, crashes=st.booleans(), cold=st.booleans(), badly=st.booleans())
    def bend_engine(self, name: str, crashes: bool, cold: bool, badly: bool) -> None:  # noqa: FBT001
        self.machine.processes.behaviour[name].start_result = "exit-code" if crashes else "success"
        self.machine.processes.behaviour[name].stops_badly = badly
        (self.box.backend.cold.add if cold else self.box.backend.cold.discard)(name)

    @rule(
        name=NAMES,
        stop_s=st.sampled_from([0.5, 40.0]),
        release_s=st.sampled_from([0.0, 2.0, 30.0, NEVER]),
    )
    def bend_release(self, name: str, stop_s: float, release_s: float) -> None:
        self.machine.processes.behaviour[name].stop_s = stop_s
        self.machine.processes.behaviour[name].release_s = release_s

    @rule(full=st.booleans(), failing=st.booleans())
    def fill_the_disk(self, full: bool, failing: bool) -> None:  # noqa: FBT001
        self.box.commitment.full, self.box.commitment.failing = full, failing

    @precondition(lambda self: not self.machine.systemd.going_down)
    @rule()
    def begin_a_reboot(self) -> None:
        self.machine.systemd.shut_down()

    @rule()
    def cut_the_power(self) -> None:
        self.boot()

    def boot(self) -> None:
        self.machine.power_up(self.box.commitment.names, hold=self.hold_is_kept())
        self.box.reborn()

    def hold_is_kept(self) -> bool:
        until = self.box.commitment.until
        return until == FOREVER or (isinstance(until, float) and until > self.machine.now_s)

    def hold_lasts(self) -> bool:
        by_hand = self.machine.systemd.hold_active and self.box.commitment.until is None
        return by_hand or self.hold_is_kept()

    # --- never -----------------------------------------------------------------------

    @invariant()
    def one_owner(self) -> None:
        rivals = self.machine.rival_pairs(self.machine.processes.holders())
        assert not rivals, f"two owners: {rivals}"
        shared = self.machine.processes.command_shares_with()
        assert not shared, f"two owners: a command and {shared}"

    @invariant()
    def one_operation_is_open(self) -> None:
        assert len(self.box.store.open()) <= 1, self.box.store.open()

    @invariant()
    def no_start_ran_out_of_memory(self) -> None:
        assert not self.machine.gpus.overfull, f"out of memory: {self.machine.gpus.overfull}"

    @invariant()
    def nothing_was_done_that_must_not_be(self) -> None:
        assert self.box.faults == []

    @invariant()
    def committed_names_can_run_together(self) -> None:
        assert self.machine.rival_pairs(self.box.commitment.names) == []

    @invariant()
    def systemd_wants_no_two_rivals(self) -> None:
        units = self.machine.systemd.units
        wanted = [n for n in BOX if units[n].is_wanted and not units[n].is_alone]
        rivals = self.machine.rival_pairs(wanted)
        assert not rivals, f"both are wanted: {rivals}"
        assert not (wanted and self.machine.systemd.hold_active), f"wanted during a hold: {wanted}"

    # --- in the end ------------------------------------------------------------------

    @rule()
    def leave_alone(self) -> None:
        """No more faults: every operation ends, and what is committed serves or has a reason."""
        self.heal()
        self.settle()

    def heal(self) -> None:
        if self.machine.systemd.going_down:
            self.boot()
        for how in self.machine.processes.behaviour.values():
            how.start_result, how.release_s = "success", min(how.release_s, 30.0)
        self.box.backend.cold.clear()
        self.box.commitment.full = self.box.commitment.failing = False
        self.box.fuse = -1
        self.machine.gpus.returns_by(self.machine.now_s + 30.0)
        for index in (0, 1):
            self.machine.gpus.grab(index, 0)

    def settle(self) -> None:
        end_s = self.machine.now_s + SETTLED_S
        operation_end_s = self.machine.now_s + OPERATION_S
        while self.machine.now_s < end_s and not self.is_settled():
            if self.box.operation is None:
                operation_end_s = self.machine.now_s + OPERATION_S
            assert self.machine.now_s <= operation_end_s, self.box.operation
            self.rest()
            self.check_invariants_now()
        assert self.is_settled(), (
            self.unexplained(),
            self.machine.systemd.units,
            self.box.operation,
        )

    def rest(self) -> None:
        """Work until there is nothing to do, then let time pass."""
        for _ in range(100):
            if not self.box.turn():
                break
        else:
            raise AssertionError(f"it never waits: {self.box.operation}")
        self.end_the_command(killed=False)
        pause_s = LOOK_EVERY_S if self.box.operation is None else LOOK_AGAIN_S
        self.machine.advance(self.machine.now_s + pause_s)

    def check_invariants_now(self) -> None:
        self.one_owner()
        self.one_operation_is_open()
        self.no_start_ran_out_of_memory()
        self.nothing_was_done_that_must_not_be()
        self.committed_names_can_run_together()
        self.systemd_wants_no_two_rivals()

    def is_settled(self) -> bool:
        systemd = self.machine.systemd
        up_or_down = {UnitState.DEAD, UnitState.FAILED, UnitState.RUNNING}
        at_rest = all(systemd.units[name].state in up_or_down for name in BOX)
        at_rest = at_rest and systemd.observed(()).run.idle
        return self.box.operation is None and at_rest and not self.unexplained()

    def unexplained(self) -> list[str]:
        """Committed names that do not serve, for no reason that a person could be told."""
        if self.hold_lasts():
            return []
        serving, systemd = set(self.machine.serving()), self.machine.systemd
        return [
            name
            for name in self.box.commitment.names
            if name not in serving
            and not systemd.units[name].stop_cause
            and serving.isdisjoint(systemd.rivals[name])
        ]

    def teardown(self) -> None:
        try:
            if sys.exception() is None:
                self.leave_alone()
        finally:
            self.box.close()


TestBox = Box.TestCase
TestBox.settings = settings(
    max_examples=3 * settings().max_examples, stateful_step_count=50, deadline=None
)


def test_a_stop_of_what_has_just_failed_leaves_it_down() -> None:
    """Systemd does not stop a unit that failed before its stop; who asked for the stop wants it down."""
    box = Box()
    box.request(Kind.STOP, (), rollback=False)
    box.crash(0, for_good=True, again=True)
    box.teardown()
    assert "both" in box.box.commitment.names
    assert box.machine.serving() == []


@pytest.mark.parametrize(
    ("broken", "finding"),
    [
        (BrokenRule.GATE, "^out of memory"),
        (BrokenRule.CONFLICTS, "^both are wanted|^wanted during a hold"),
        (BrokenRule.LEASE, "^two owners|^out of memory"),  # whichever of the two shows first
    ],
)
def test_a_broken_rule_is_found(broken: BrokenRule, finding: str) -> None:
    """Without the gate, Conflicts= or the lease the same machine fails: it can."""

    class BrokenBox(Box):
        pass

    BrokenBox.broken = broken
    if broken is BrokenRule.LEASE:
        BrokenBox.needs = {}  # or the gate refuses most of what the lease would
    found = settings(
        max_examples=200,
        stateful_step_count=50,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError, match=finding):
        run_state_machine_as_test(BrokenBox, settings=found)
