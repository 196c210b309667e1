"""A disk that refuses writes at random loses nothing that served."""

from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from appliance.model.operations import FOREVER, Finished, HoldUntil, Kind, Outcome
from tests.fakes.clock import NEVER
from tests.fakes.gpu_memory import FakeGpus
from tests.fakes.killable_box import KillableBox
from tests.fakes.machine import FakeMachine
from tests.fakes.profiles import applied, catalogue

BOX: Final = catalogue(
    applied("both", "gpu-all"),
    applied("left", "gpu-0"),
    applied("other", "gpu-all"),
    applied("right", "gpu-1"),
    applied("shared"),
)
TARGETS: Final = st.sampled_from(
    [("both",), ("left",), ("other",), ("left", "right"), ("left", "shared"), ("shared",)]
)
LOOK_AGAIN_S: Final = 1.0
UNDONE: Final = frozenset({Outcome.REFUSED, Outcome.ROLLED_BACK, Outcome.FAILED})
NEVER_IN_VAIN: Final = frozenset({Outcome.REFUSED, Outcome.DONE})

# A process that dies while a request is taken has made what it can no longer run.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine 'Supervisor._live' was never awaited")


class Box(RuleBasedStateMachine):
    """A sound box with an unsound disk: engines start, memory comes back, nobody interferes."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = FakeMachine(BOX, {}, FakeGpus(16, 2))
        self.box = KillableBox(self.machine, "both", "shared")
        self.machine.power_up(("both", "shared"), hold=False)
        self.rest()

    def rest(self) -> None:
        """Work until no operation runs and nothing moves."""
        for _ in range(2000):
            if self.box.turn():
                continue
            if self.box.operation is None and self.machine.next_due_s() == NEVER:
                return
            self.machine.advance(self.machine.now_s + LOOK_AGAIN_S)
        raise AssertionError(f"it never ends: {self.box.operation}")

    def state(self) -> tuple[list[str], tuple[str, ...], HoldUntil]:
        """Return the serving profiles, and the names that a boot follows."""
        return sorted(self.machine.serving()), self.box.commitment.names, self.box.commitment.until

    @rule(
        kind=st.sampled_from([Kind.SWITCH, Kind.SWITCH, Kind.START, Kind.RESTART, Kind.HOLD]),
        names=TARGETS,
        disk=st.sampled_from(["sound", "full", "fills up", "failing"]),
        turns=st.integers(0, 8),
        fuse=st.integers(-4, 8),
    )
    def operate(self, kind: Kind, names: tuple[str, ...], disk: str, turns: int, fuse: int) -> None:
        """One operation, the disk's trouble after some of its steps, and perhaps one death."""
        before, ended = self.state(), len(self.box.store.ended)
        self.box.commitment.full = disk == "full"
        hold = kind is Kind.HOLD
        self.box.submit(kind, () if hold else names, hold_until=FOREVER if hold else None)
        self.box.fuse = -1 if disk == "failing" else fuse
        for _ in range(turns):
            self.box.turn()
        self.box.commitment.full = self.box.commitment.full or disk == "fills up"
        self.box.commitment.failing = disk == "failing"
        self.rest()
        self.box.commitment.full = self.box.commitment.failing = False
        self.box.fuse = -1
        for finished in self.box.store.ended[ended : ended + 1]:
            self.judge(finished, before)
            # Want of room is noticed while nothing is stopped yet; an error of the disk may not be.
            assert disk == "failing" or finished.outcome in NEVER_IN_VAIN, finished

    def judge(
        self, finished: Finished, before: tuple[list[str], tuple[str, ...], HoldUntil]
    ) -> None:
        """Check that a failed operation changed nothing, and a finished one serves its target."""
        assert self.box.faults == []
        serving, committed, hold = self.state()
        if finished.outcome in UNDONE:
            assert set(before[0]) <= set(serving), finished
            assert (committed, hold) == before[1:], finished
            return
        goal = finished.operation.goal
        assert finished.outcome is Outcome.DONE, finished
        assert set(goal.start) <= set(serving), finished
        assert (committed, hold) == (goal.commit or before[1], goal.hold_until), finished

    @rule(name=st.sampled_from(sorted(BOX)))
    def start_by_hand(self, name: str) -> None:
        """Start a profile by hand, which is not committed."""
        self.machine.systemd.start(name)
        self.rest()

    def teardown(self) -> None:
        self.box.close()


TestBox = Box.TestCase
TestBox.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=20, deadline=None
)
