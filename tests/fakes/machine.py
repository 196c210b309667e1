"""A machine without any of our daemons: systemd's units, their processes on GPUs, and its power supply."""

import itertools
from collections.abc import Iterable, Mapping

from appliance.model.profile import Catalogue
from tests.fakes.clock import NEVER
from tests.fakes.gpu_memory import FakeGpus
from tests.fakes.systemd import FakeSystemd
from tests.fakes.systemd_unit import UnitState
from tests.fakes.unit_processes import Behaviour, BrokenRule, Command, UnitProcesses

A_HOLD = "a hold"
"""Cause of the stops of a hold."""
_OFF_S = 10.0


class FakeMachine:
    """Machine around the supervisor; `advance` lets time pass.

    Args:
        catalogue: Applied profiles.
        needs: GiB by GPU that each engine takes.
        gpus: The GPUs.
        broken: Rule that is taken out.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        needs: Mapping[str, Mapping[int, int]],
        gpus: FakeGpus,
        broken: BrokenRule = BrokenRule.NOTHING,
    ) -> None:
        self.catalogue = catalogue
        self.gpus = gpus
        self.systemd = FakeSystemd(catalogue)
        self.processes = UnitProcesses(self.systemd, needs, gpus, broken)
        self.processes.command = Command(wait_s=0.0, run_s=NEVER, stop_s=2.0, release_s=3.0)
        for name in catalogue:
            self.processes.behaviour[name] = Behaviour(wrapper_s=0.1, start_s=2.0, load_s=2.0)

    @property
    def now_s(self) -> float:
        """Seconds of every clock."""
        return self.systemd.now_s

    def rival_pairs(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Pairs among `names` that must never be together."""
        rivals = self.systemd.rivals
        return [(a, b) for a, b in itertools.combinations(sorted(names), 2) if b in rivals[a]]

    def serving(self) -> list[str]:
        """Profiles whose unit is up."""
        units = self.systemd.units
        return [name for name in self.catalogue if units[name].state is UnitState.RUNNING]

    def start_hold(self, cause: str) -> None:
        """Start the hold; profiles that are down already are kept down by it too."""
        self.systemd.start_hold(cause)
        for name in self.catalogue if self.systemd.has_conflicts else ():
            self.systemd.units[name].stop_cause = cause

    def power_up(self, names: Iterable[str], *, hold: bool) -> None:
        """Boot after a power cut or a shutdown; `launch.boot` starts the hold, or `names`."""
        self.systemd.power_up()
        self.processes.power_cut()
        self.systemd.now_s += _OFF_S
        if hold:
            self.start_hold(A_HOLD)
        else:
            for name in names:
                self.systemd.start(name)

    def advance(self, to_s: float) -> bool:
        """Let time pass until `to_s` or until something happens; True: something happened."""
        due_s = self.gpus.next_due_s()
        if self.systemd.next_due_s() <= min(due_s, to_s) or due_s > to_s:
            return self.systemd.advance(to_s)
        self.systemd.now_s = max(self.systemd.now_s, due_s)
        self.systemd.settle()
        return True

    def next_due_s(self) -> float:
        """Return when something happens by itself."""
        return min(self.systemd.next_due_s(), self.gpus.next_due_s())
