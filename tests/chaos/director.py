"""One box: when what happens to it, and what has become of it when it is left alone."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.chaos import people
from tests.chaos.clients import Told
from tests.chaos.faults import dismiss, strike, unit
from tests.chaos.observer import ENOUGH_A_SECOND
from tests.chaos.scenario import MODELS
from tests.chaos.verdicts import Judged, Rest, broken_words, judge, status, unlocked
from tests.chaos.world import World

CONVERGES_WITHIN_S: Final = 30.0
GROUP: Final = (4, 8)
"""Faults between two times that a box is left alone."""
_GAP_S: Final = 0.7
_ACTS_A_FAULT: Final = 0.6
_RIVAL_AT_REST: Final = 0.4
_KEEPS_ITS_OBSTACLE: Final = 0.4
_LOOK_EVERY_S: Final = 0.4
_PATIENCE_S: Final = {Rest.SERVING: 0.8, Rest.BY_HAND: 0.8}
_MORE_PATIENCE_S: Final = 6.0
"""A reason for not serving has to last that long: repairs begin after five seconds."""


@dataclass(slots=True)
class Tally:
    """Tally of what one box has shown."""

    faults: int = 0
    lost_operations: int = 0
    unconverged: int = 0
    rests: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0


class Director:
    """The stream of one box.

    Args:
        world: The box.
        faults: How many to do to it.
        told_bad: Called with a violation and a dump of the box.
    """

    def __init__(self, world: World, faults: int, told_bad: Callable[[str, str], None]) -> None:
        self._world = world
        self._left = faults
        self._told_bad = told_bad
        self._oom = 0
        self._together = 0
        self.tally = Tally()

    def run(self) -> Tally:
        """Do it all."""
        while self._left > 0:
            told_before = len(self._world.clients.told)
            for _ in range(min(self._left, self._world.rng.randint(*GROUP))):
                self._something()
            self._leave_alone(told_before)
            if self._left > 0 and self._world.rng.random() < _RIVAL_AT_REST:
                self._rival_at_rest()
        world = self._world
        if world.observer.a_second < ENOUGH_A_SECOND:
            raise RuntimeError(f"only {world.observer.a_second:.0f} samples a second")
        return self.tally

    def _something(self) -> None:
        world = self._world
        if world.rng.random() < _ACTS_A_FAULT:
            world.say(people.act(world))
            world.pause(world.rng.expovariate(1 / _GAP_S))
        kind, done = strike(world)
        self._count(kind, done)
        world.pause(min(3.0, world.rng.expovariate(1 / _GAP_S)))

    def _count(self, kind: str, done: str) -> None:
        self._left -= 1
        self.tally.faults += 1
        self.tally.kinds[kind] += 1
        self._world.say(f"FAULT {self.tally.faults} {done}")

    # --- left alone --------------------------------------------------------------------------

    def _leave_alone(self, told_before: int) -> None:
        """Undo what is not meant to last, and see what becomes of the box."""
        world = self._world
        world.finish_what_is_due()
        if world.rng.random() > _KEEPS_ITS_OBSTACLE:
            self._lift_obstacles()
        judged = self._come_to_rest()
        world.say(f"left alone: {judged.rest}: {judged.why}")
        self._check_owners()
        if judged.rest is Rest.UNCLEAR:
            self._violation("unconverged", judged.why)
        elif judged.rest in {Rest.SERVING, Rest.BY_HAND}:
            for sentence in unlocked(world):
                self._violation("unconverged", sentence)
        self._check_words(world.clients.told[told_before:])
        self._lift_obstacles()
        if judged.rest is Rest.SERVING:
            world.may_be_held = world.may_be_stopped = world.may_be_evicted = False

    def _lift_obstacles(self) -> None:
        world = self._world
        if world.memory_kept:
            world.gpus.release_after(0)
            world.memory_kept = False
        for trainer in list(world.trainers):
            dismiss(world, trainer)

    def _come_to_rest(self) -> Judged:
        began_s = time.monotonic()
        end_s = began_s + CONVERGES_WITHIN_S
        last = Judged(Rest.UNCLEAR, "")
        since_s = began_s
        while True:
            now_s = time.monotonic()
            judged = judge(self._world, status(self._world))
            if judged.rest is not last.rest:
                since_s = now_s
            last = judged
            lasting = now_s - since_s >= _PATIENCE_S.get(judged.rest, _MORE_PATIENCE_S)
            late = now_s >= end_s
            if late or (lasting and judged.rest is not Rest.UNCLEAR):
                break
            self._world.pause(_LOOK_EVERY_S)
        self.tally.rests[last.rest] += 1
        self.tally.slowest_s = max(self.tally.slowest_s, since_s - began_s)
        return last

    def _rival_at_rest(self) -> None:
        """A person starts another model by hand and leaves it at that: it must serve."""
        world = self._world
        document = status(world)
        idle = [n for n in sorted(MODELS) if n not in world.observer.owners]
        if document is None or document["operation"] or not idle:
            return
        name = world.rng.choice(idle)
        world.may_be_evicted = True
        # Whoever does this by hand clears the start limit too, should it have been hit.
        world.run(f"systemctl reset-failed {unit(name)}; systemctl start --no-block {unit(name)}")
        self._count("rival at rest", f"systemctl start {name}, and nothing else")
        end_s = time.monotonic() + CONVERGES_WITHIN_S
        while name not in world.observer.owners and time.monotonic() < end_s:
            world.pause(_LOOK_EVERY_S)
        if name not in world.observer.owners:
            self._violation("unconverged", f"{name} was started by hand and does not serve")
        self._leave_alone(len(world.clients.told))

    # --- violations --------------------------------------------------------------------------

    def _check_owners(self) -> None:
        world = self._world
        if (oom := world.count_out_of_memory()) > self._oom:
            self._dump("oom", "; ".join(world.out_of_memory[self._oom :]))
            self._oom = oom
        if (together := len(world.observer.together)) > self._together:
            self._dump("owners", "; ".join(world.observer.together[self._together :]))
            self._together = together

    def _check_words(self, told: list[Told]) -> None:
        world = self._world
        world.pause(0.5 if world.clients.waiting() else 0.0)
        for late in world.clients.hang_up():
            self._violation("lost", f"nobody ended the command: {late}")
        document = status(world)
        committed = document["committed"] if document else []
        for sentence in broken_words(world, told, committed):
            self._violation("lost", sentence)

    def _violation(self, kind: str, text: str) -> None:
        if kind == "lost":
            self.tally.lost_operations += 1
        else:
            self.tally.unconverged += 1
        self._dump(kind, text)

    def _dump(self, kind: str, text: str) -> None:
        world = self._world
        world.say(f"VIOLATION {kind}: {text}")
        parts = [
            world.run("appliance", "status"),
            world.run("appliance", "status", "--json"),
            world.run("systemctl list-jobs; systemctl list-units --all 'appliance-*'"),
            f"holds {world.gpus.holds()}\nstate {world.gpus.state()}",
            world.box.journal("-n400"),
        ]
        self._told_bad(f"{kind}: {text}", "\n".join(parts))
