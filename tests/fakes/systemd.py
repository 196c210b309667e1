"""A systemd that obeys the generated units: Conflicts, ordering, the gate, restarts, in virtual time."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from appliance.domain.claims import Claim
from appliance.domain.errors import UnitError
from appliance.domain.observed import ActiveState, Observed, ObservedUnit
from appliance.domain.profile import Catalogue
from appliance.planning.switch.goals import in_the_way, in_the_way_of
from tests.fakes.command import FakeCommand

NEVER = float("inf")


@dataclass
class Behaviour:
    """Behaviour of one backend. Times are in seconds."""

    load_s: float = 1.0
    stop_s: float = 0.5
    start_result: str = "success"
    """Other than success: the start fails with this result."""
    stops_badly: bool = False
    """Whether the backend exits with an error on SIGTERM."""
    refusal: str = ""
    """Not empty: the gate refuses with this sentence."""


@dataclass
class _Slot:
    unit: ObservedUnit = field(default_factory=ObservedUnit)
    due_s: float = NEVER
    wants_start: bool = False


class FakeSystemd:
    """Holds units and time. `advance` lets it act."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.now_s = 1000.0
        self.going_down = False
        self.hold_active = False
        self.behaviour = {name: Behaviour() for name in catalogue}
        self.refusals: dict[str, str] = {}
        self.slots = {name: _Slot() for name in catalogue}
        self.starts: list[str] = []
        self.command = FakeCommand()
        self._changes = 0

    def observed(self, names: Iterable[str]) -> Observed:
        """Return the state that D-Bus would report."""
        return Observed(
            units={name: self.slots[name].unit for name in names if name in self.slots},
            hold_active=self.hold_active,
            going_down=self.going_down,
            run=self.command.unit,
        )

    def _at_rest(self, unit: ObservedUnit | None = None) -> ObservedUnit:
        """A unit that has come to rest just now, later than all that came before."""
        self._changes += 1
        now_s = self.now_s + self._changes / 1e6
        return replace(unit or ObservedUnit(), changed_s=now_s, stopped_s=now_s)

    def owners(self) -> list[str]:
        """Profiles that have a process."""
        return [name for name, slot in self.slots.items() if slot.unit.main_pid]

    def start(self, name: str, *, by_hand: bool = False) -> None:
        """Queue a start job: conflicting units are stopped first."""
        if self.going_down:
            raise UnitError("the transaction is destructive")
        slot = self.slots[name]
        if slot.unit.serving or slot.wants_start:
            return
        self.hold_active = False
        busy = [r for r in in_the_way(name, self.catalogue) if not self.slots[r].unit.idle]
        if not by_hand:
            self.starts.append(name)
        for rival in busy:
            self.stop(rival)
        if slot.unit.waits_to_restart:
            # The job waits for the pause to end: "start" does not cut it short.
            slot.unit = replace(slot.unit, has_job=True)
            return
        slot.wants_start = True
        slot.unit = replace(slot.unit, has_job=True)
        self._settle()

    def stop(self, name: str) -> None:
        """Queue a stop job."""
        slot = self.slots[name]
        slot.wants_start = False
        if not slot.unit.main_pid:
            was_idle = slot.unit.active is ActiveState.INACTIVE and not slot.unit.has_job
            slot.unit = slot.unit if was_idle else self._at_rest()
            slot.due_s = NEVER
        elif slot.unit.active is not ActiveState.DEACTIVATING:
            slot.unit = replace(
                slot.unit, active=ActiveState.DEACTIVATING, sub="stop-sigterm", has_job=True
            )
            slot.due_s = self.now_s + self.behaviour[name].stop_s
        self._settle()

    def start_run(self) -> None:
        """Start the command's unit, which has no conflicts: leases keep it apart from backends."""
        self.command.start(self.now_s)

    def stop_run(self) -> None:
        """Queue a stop of the command."""
        self.command.stop(self.now_s)

    def _has_lease(self, claim: Claim) -> str | None:
        """A backend with a process that such a claim excludes."""
        rivals = in_the_way_of(claim, self.catalogue)
        return next((r for r in sorted(rivals) if self.slots[r].unit.main_pid), None)

    def start_hold(self) -> None:
        """Conflicts with every backend."""
        for name in self.slots:
            self.stop(name)
        self.hold_active = True

    def crash(self, name: str, *, status: int = 1) -> None:
        """The engine ends; systemd waits before it starts it again, whatever the status."""
        slot = self.slots[name]
        if slot.unit.main_pid and slot.unit.active is not ActiveState.DEACTIVATING:
            slot.unit = ObservedUnit(
                active=ActiveState.ACTIVATING,
                sub="auto-restart",
                result="exit-code" if status else "success",
                exit_status=status,
            )
            slot.due_s = self.now_s + 1.0

    def give_up(self, name: str) -> None:
        """The start limit is hit."""
        self.slots[name] = _Slot(
            unit=self._at_rest(
                ObservedUnit(active=ActiveState.FAILED, sub="failed", result="start-limit-hit")
            )
        )

    def next_due_s(self) -> float:
        """When something happens by itself."""
        dues = [slot.due_s for slot in self.slots.values()]
        return min([*dues, self.command.due_s])

    def advance(self, to_s: float) -> bool:
        """Let time pass until `to_s` or until something happens; True: something happened."""
        due = self.next_due_s()
        if due > to_s:
            self.now_s = max(self.now_s, to_s)
            return False
        self.now_s = max(self.now_s, due)
        for name, slot in self.slots.items():
            if slot.due_s <= self.now_s:
                slot.due_s = NEVER
                self._happen(name, slot)
        if self.command.due_s <= self.now_s:
            blocked = self._has_lease(self.command.claim) is not None
            self.command.happen(self.now_s, blocked=blocked)
        self._settle()
        return True

    def _happen(self, name: str, slot: _Slot) -> None:
        how = self.behaviour[name]
        match slot.unit.active:
            case ActiveState.DEACTIVATING:
                failed = how.stops_badly
                slot.unit = self._at_rest(
                    ObservedUnit(
                        active=ActiveState.FAILED if failed else ActiveState.INACTIVE,
                        sub="failed" if failed else "dead",
                        result="exit-code" if failed else "success",
                        exit_status=1 if failed else 0,
                    )
                )
            case ActiveState.ACTIVATING if slot.unit.waits_to_restart:
                slot.wants_start = True
                slot.unit = ObservedUnit(has_job=True)
            case ActiveState.ACTIVATING if how.start_result != "success":
                slot.unit = ObservedUnit(
                    active=ActiveState.ACTIVATING,
                    sub="auto-restart",
                    result=how.start_result,
                    exit_status=1,
                )
                slot.due_s = self.now_s + 20.0
            case ActiveState.ACTIVATING:
                slot.unit = ObservedUnit(
                    active=ActiveState.ACTIVE,
                    sub="running",
                    main_pid=slot.unit.main_pid,
                    status_text="serving",
                    since_unix_s=self.now_s,
                    since_s=self.now_s,
                )
            case _:
                raise AssertionError(f"{name} was not expected to change in {slot.unit}")

    def _command_has(self, name: str) -> str:
        meets = self.catalogue[name].claim.intersects(self.command.claim)
        return "held by the command" if self.command.holds and meets else ""

    def _settle(self) -> None:
        """Start what waits for its rivals to be gone, as the ordering does."""
        for name, slot in self.slots.items():
            rivals = in_the_way(name, self.catalogue)
            waiting = any(self.slots[r].unit.main_pid for r in rivals)
            if not slot.wants_start or slot.unit.main_pid or waiting:
                continue
            slot.wants_start = False
            if refusal := self.behaviour[name].refusal or self._command_has(name):
                slot.unit, slot.due_s = self._at_rest(), NEVER
                self.refusals[name] = refusal
                continue
            self.refusals.pop(name, None)
            slot.unit = ObservedUnit(
                active=ActiveState.ACTIVATING,
                sub="start",
                main_pid=1 + len(self.starts),
                has_job=True,
                status_text="loading: 1 s",
                loading=True,
            )
            slot.due_s = self.now_s + self.behaviour[name].load_s
