"""A box in virtual time, without any of our services: units, gate, leases, GPUs, people.

What systemd, the gate and the wrapper do for a unit is modelled here by their rules
(Conflicts=, the wait for units that stop, the gate's deadline, Restart= and its start limit), so
that the planner can be tried against it. Each rule can be broken, to see that it is missed.
"""

import itertools
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from appliance.domain.claims import Claim
from appliance.domain.errors import UnitError
from appliance.domain.observed import Observed, RunReport
from appliance.domain.profile import Catalogue
from appliance.planning.switch.goals import in_the_way
from appliance.planning.switch.repair import EXIT_LEASE_HELD
from tests.fakes.cards import NEVER, Cards
from tests.fakes.unit_lives import Behaviour, Command, Life, Unit, has_claim, shown, shown_command

GATE_S: Final = 60.0
PAUSE_S: Final = 5.0
BURST: Final = 5
BURST_WINDOW_S: Final = 1800.0
COMMAND_RELEASE_S: Final = 3.0
A_COMMAND: Final = "a command"
WRAPPER_S: Final = 0.1
"""Between the gate's verdict and the lease."""


class Broken(StrEnum):
    """A rule that is taken out."""

    NOTHING = "nothing"
    GATE = "gate"
    CONFLICTS = "conflicts"
    LEASE = "lease"


class World:
    """World outside the planner."""

    def __init__(
        self,
        catalogue: Catalogue,
        needs: Mapping[str, Mapping[int, int]],
        cards: Cards,
        broken: Broken = Broken.NOTHING,
    ) -> None:
        self.catalogue = catalogue
        self.needs = needs
        self.cards = cards
        self.broken = broken
        self.rivals = {name: sorted(in_the_way(name, catalogue)) for name in catalogue}
        self.behaviour = {name: Behaviour() for name in catalogue}
        self.now_s = 1000.0
        self.boot = 1
        self.going_down = False
        self.hold_active = False
        self.units = {name: Unit() for name in catalogue}
        self.command = Command()
        self.refusals: dict[str, str] = {}
        self.why_idle: dict[str, str] = {}
        """Cause of the stop of a unit that has not come up since."""

    # --- what can be seen ------------------------------------------------------------

    def observed(self) -> Observed:
        """Return the state that D-Bus would report."""
        return Observed(
            units={name: shown(unit) for name, unit in self.units.items()},
            hold_active=self.hold_active,
            going_down=self.going_down,
            run=shown_command(self.command),
        )

    def owners(self) -> list[str]:
        """Profiles whose engine runs."""
        return [name for name, unit in self.units.items() if unit.runs]

    def command_shares_with(self) -> list[str]:
        """Owners of what a command has too."""
        if not has_claim(self.command):
            return []
        return [n for n in self.owners() if self._intersects(n, self.command.claim)]

    def _intersects(self, name: str, claim: Claim) -> bool:
        return self.catalogue[name].claim.intersects(claim)

    def rival_pairs(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Pairs among `names` that must never be together."""
        return [(a, b) for a, b in itertools.combinations(sorted(names), 2) if b in self.rivals[a]]

    # --- what people and the supervisor do -------------------------------------------

    def start(self, name: str, *, alone: bool = False) -> None:
        """``systemctl start``; `alone`: with --job-mode=ignore-dependencies."""
        if self.going_down:
            raise UnitError("the transaction is destructive")
        unit = self.units[name]
        if not alone and self.broken is not Broken.CONFLICTS:
            self.hold_active = False
            for rival in self.rivals[name]:
                self.stop(rival, f"{name} was started")
            unit.alone = False
        if unit.life in {Life.PAUSED, Life.STOPPING}:
            unit.again, unit.alone = True, alone
        elif not unit.is_wanted:
            unit.life, unit.alone = Life.QUEUED, alone
        self._settle()

    def stop(self, name: str, why: str) -> None:
        """``systemctl stop``."""
        unit = self.units[name]
        if unit.life not in {Life.IDLE, Life.FAILED} or unit.again:
            self.why_idle[name] = why
        unit.again = False
        if unit.life is Life.STOPPING:
            return
        if unit.runs:
            unit.life, unit.due_s = Life.STOPPING, self.now_s + self.behaviour[name].stop_s
        elif unit.life is not Life.FAILED:
            self.cards.leave(name, self.now_s)
            self._rest(unit)
        self._settle()

    def start_hold(self, why: str) -> None:
        """Start the unit that conflicts with every backend."""
        if self.going_down:
            raise UnitError("the transaction is destructive")
        self.hold_active = True
        for name in self.units if self.broken is not Broken.CONFLICTS else ():
            self.stop(name, why)
            self.why_idle[name] = why

    def start_run(self, claim: Claim) -> None:
        """Start the launcher; its caller is there at once."""
        if self.going_down:
            raise UnitError("the transaction is destructive")
        if self.command.life is Life.IDLE:
            self.command = Command(life=Life.GATE, claim=claim, due_s=self.now_s + GATE_S)
            self._settle()

    def stop_run(self) -> None:
        """Stop it, or begin to."""
        if self.command.life is Life.GATE:
            self.end_run(RunReport(ran=False, text="it was stopped"))
        elif self.command.life is Life.SERVING:
            self.command.life, self.command.due_s = Life.STOPPING, self.now_s + 2.0

    def end_run(self, report: RunReport | None) -> None:
        """The launcher ends; None: somebody killed it."""
        if self.command.life is Life.IDLE:
            return
        self.cards.leave(A_COMMAND, self.now_s + COMMAND_RELEASE_S)
        self.command = Command(report=report, killed=report is None)
        self._settle()

    def reset_failed(self, name: str) -> bool:
        """``systemctl reset-failed``; True: somebody could see a difference."""
        unit = self.units[name]
        unit.starts.clear()
        if unit.life is not Life.FAILED:
            return False
        self._rest(unit)
        return True

    def crash(self, name: str) -> None:
        """The engine dies by itself."""
        unit = self.units[name]
        if unit.runs and unit.life is not Life.STOPPING:
            self._die(name, "exit-code", 1)
            self._settle()

    def crash_for_good(self, name: str) -> None:
        """Crash a unit as often as systemd allows."""
        unit = self.units[name]
        if unit.life in {Life.PAUSED, Life.SERVING}:
            self._die(name, "exit-code", 1)
            unit.life, unit.due_s, unit.result = Life.FAILED, NEVER, "start-limit-hit"
            unit.again = False
            self._settle()

    def shut_down(self) -> None:
        """A reboot begins: every unit is told to stop."""
        self.going_down = True
        self.stop_run()
        for name in self.units:
            self.stop(name, "shutdown")

    def power_up(self, names: Iterable[str], *, hold: bool) -> None:
        """The machine comes up again, and `launch.boot` has read its files."""
        self.boot += 1
        self.going_down = self.hold_active = False
        self.cards.power_cut()
        self.command = Command()
        self.refusals.clear()
        self.why_idle.clear()
        self.units = {name: Unit() for name in self.catalogue}
        self.now_s += 10.0
        if hold:
            self.start_hold("a hold")
        else:
            for name in names:
                self.start(name)

    # --- time ------------------------------------------------------------------------

    def next_due_s(self) -> float:
        """When something happens by itself."""
        due = min((unit.due_s for unit in self.units.values()), default=NEVER)
        return min(due, self.cards.next_due_s(), self.command.due_s)

    def advance(self, to_s: float) -> bool:
        """Let time pass until `to_s` or until something happens; True: something happened."""
        due = self.next_due_s()
        self.now_s = max(self.now_s, min(due, to_s))
        if due > to_s:
            return False
        self.cards.give_back(self.now_s)
        for name, unit in self.units.items():
            if unit.due_s <= self.now_s:
                unit.due_s = NEVER
                self._happen(name, unit)
        if self.command.due_s <= self.now_s:
            ran = self.command.life is Life.STOPPING
            self.end_run(RunReport(ran=ran, text="by a stop" if ran else "memory is not back"))
        self._settle()
        return True

    def _happen(self, name: str, unit: Unit) -> None:
        how = self.behaviour[name]
        match unit.life:
            case Life.STOPPING:
                again, alone = unit.again, unit.alone
                self._die(name, "exit-code" if how.stops_badly else "success", how.stops_badly)
                if again:
                    unit.life, unit.alone = Life.QUEUED, alone
            case Life.PAUSED:
                # systemd starts it like anybody else: what conflicts is stopped for it.
                unit.life, unit.again = Life.IDLE, False
                self.start(name, alone=unit.alone)
            case Life.GATE:
                self.refusals[name] = "the memory has not come back"
                unit.starts.clear()
                self._die(name, "exit-code", 0)
            case Life.WRAPPER if self._lease_is_held(name):
                self._die(name, "exit-code", EXIT_LEASE_HELD)
            case Life.WRAPPER:
                self.why_idle.pop(name, None)
                unit.life, unit.due_s = Life.STARTING, self.now_s + how.load_s / 2
            case Life.STARTING if self.cards.allocate(name):
                unit.life, unit.due_s = Life.LOADING, self.now_s + how.load_s / 2
            case Life.LOADING if not how.crashes_loading:
                unit.life = Life.SERVING
            case Life.STARTING | Life.LOADING:
                self._die(name, "exit-code", 1)
            case _:
                raise AssertionError(f"{name} was not expected to change in {unit}")

    def _die(self, name: str, result: str, exit_status: int) -> None:
        """End a unit's processes; Restart=on-failure decides what follows."""
        unit = self.units[name]
        stopped, lease = unit.life is Life.STOPPING, exit_status == EXIT_LEASE_HELD
        self.cards.leave(name, self.now_s + self.behaviour[name].release_s)
        self.cards.give_back(self.now_s)
        self._rest(unit)
        if result == "success":
            return
        unit.result, unit.exit_status = result, int(exit_status)
        unit.life = Life.FAILED if stopped or lease else Life.PAUSED
        unit.due_s = NEVER if stopped or lease else self.now_s + PAUSE_S

    def _rest(self, unit: Unit) -> None:
        unit.life, unit.due_s, unit.alone, unit.again = Life.IDLE, NEVER, False, False
        unit.result, unit.exit_status = "success", 0

    # --- starts ----------------------------------------------------------------------

    def _settle(self) -> None:
        """Let in what waits and may."""
        for name, unit in self.units.items():
            if unit.life is Life.QUEUED and not self._waits_for_a_stop(name):
                self._enter_gate(unit)
            if unit.life is Life.GATE:
                self._look_through_gate(name, unit)
        if self.command.life is Life.GATE:
            self._look_for_command(self.command)

    def _look_for_command(self, command: Command) -> None:
        """Advance the command's launcher, which waits for memory; a lease that is held ends it."""
        rivals = [n for n in self.owners() if self._intersects(n, command.claim)]
        if rivals and self.broken is not Broken.LEASE:
            self.end_run(RunReport(ran=False, text="the claim is held"))
        elif not self.cards.is_haunted(command.claim) or self.broken is Broken.GATE:
            command.life, command.due_s = Life.SERVING, NEVER
            self.cards.take_all(A_COMMAND, command.claim)

    def _waits_for_a_stop(self, name: str) -> bool:
        if self.units[name].alone or self.broken is Broken.CONFLICTS:
            return False
        return any(self.units[rival].life is Life.STOPPING for rival in self.rivals[name])

    def _enter_gate(self, unit: Unit) -> None:
        unit.starts = [t for t in unit.starts if t > self.now_s - BURST_WINDOW_S]
        if len(unit.starts) >= BURST:
            self._rest(unit)
            unit.life, unit.result = Life.FAILED, "start-limit-hit"
            return
        unit.starts.append(self.now_s)
        unit.life, unit.due_s = Life.GATE, self.now_s + GATE_S

    def _look_through_gate(self, name: str, unit: Unit) -> None:
        if self.broken is not Broken.GATE:
            if self._lease_is_held(name):
                self.refusals[name] = "the claim is held"
                unit.starts.clear()
                self._rest(unit)
                return
            if not self.cards.fits(self.needs.get(name, {})):
                return
        self.refusals.pop(name, None)
        self.cards.promise(name, self.needs.get(name, {}))
        unit.life, unit.due_s = Life.WRAPPER, self.now_s + WRAPPER_S

    def _lease_is_held(self, name: str) -> bool:
        if self.broken is Broken.LEASE:
            return False
        by_command = has_claim(self.command) and self._intersects(name, self.command.claim)
        return by_command or any(self.units[rival].runs for rival in self.rivals[name])
