"""Clients that want different profiles, for hours, in virtual time."""

from dataclasses import dataclass, field
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from appliance.routing.switch_scheduler import (
    BoxState,
    CheckAgain,
    SwitchPolicy,
    SwitchTo,
    WaitingProfile,
    next_switch,
)

TURNS: Final = SwitchPolicy(residency_s=60, patience_s=90)
NAMES: Final = ("a", "b", "c", "d")
LOAD_S: Final = 20
HOUR_S: Final = 3600
LONGEST_S: Final = len(NAMES) * (TURNS.patience_s + LOAD_S) + TURNS.residency_s
"""A turn of everybody, and what the one that serves still has."""


@dataclass(kw_only=True)
class World:
    """A box, its clients and what they have lived through."""

    active: str = "a"
    since_s: float = 0
    loading: str | None = None
    ready_s: float = 0
    waiting: dict[str, float] = field(default_factory=dict)
    residencies: list[float] = field(default_factory=list)
    longest_s: float = 0

    def ask(self, name: str, now_s: float) -> None:
        """A client asks for a profile."""
        if self.loading is not None or name != self.active:
            self.waiting.setdefault(name, now_s)

    def look(self, now_s: float, in_flight: int) -> None:
        """The gateway and the supervisor at work."""
        if self.loading is not None and now_s >= self.ready_s:
            self.active, self.since_s, self.loading = self.loading, now_s, None
            began = self.waiting.pop(self.active)
            self.longest_s = max(self.longest_s, now_s - began)
            # What asked for it while it loaded is served, and what still waits is looked at again.
        box = BoxState(since_s=self.since_s, in_flight=in_flight, busy=self.loading is not None)
        line = [WaitingProfile(profile=name, since_s=at) for name, at in self.waiting.items()]
        turn = next_switch(now_s, box, line, TURNS)
        if isinstance(turn, CheckAgain):
            assert turn.at_s > now_s
        if isinstance(turn, SwitchTo):
            self.residencies.append(now_s - self.since_s)
            self.loading, self.ready_s = turn.profile, now_s + LOAD_S


rates = st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(0, 40)))


@given(rates, st.integers(0, 3))
def test_the_box_does_not_thrash_and_nobody_starves(rates: dict[str, int], in_flight: int) -> None:
    """However often each profile is asked for: every so many seconds, or never."""
    world = World()
    for now_s in range(HOUR_S):
        for name, every in rates.items():
            if every and now_s % every == 0:
                world.ask(name, now_s)
        world.look(now_s, in_flight)
    assert all(stayed >= TURNS.residency_s for stayed in world.residencies)
    assert world.longest_s <= LONGEST_S
    assert all(HOUR_S - began <= LONGEST_S for began in world.waiting.values())
    wanted = {name for name, every in rates.items() if every} - {"a"}
    if wanted:
        assert world.residencies
