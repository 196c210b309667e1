"""Model of systemd's units in virtual time: the backends, appliance-hold and appliance-run.

It knows what systemd does with a unit, and nothing of what the unit's processes do: those are
`Processes`, which systemd forks and signals, and which report by calling `condition_exited`, `ready`,
`main_exited`. A booted systemd decides the rules, in `tests.contracts.units_contract`;
those about exit 255, statuses 78 and 79, time-outs and appliance-run are as systemd.service(5) has them.

===============  ==============  ====================================================================
state            event           what follows
===============  ==============  ====================================================================
dead, failed     start job       waits for the stop jobs of what conflicts, then condition; failed
                                 where the start limit is reached
                 stop job        nothing: a failed unit stays failed
condition        exit 0          start
                 exit 1 to 254   dead, "exec-condition", no restart
                 exit 255        auto-restart
                 stop job        failed, "signal": SIGTERM is no clean end of a condition
start            READY=1         running
                 end             auto-restart; "protocol" where it was clean
start, running   stop job        stop: SIGTERM
running          end             auto-restart, also where it was clean; failed after status 78 or 79
stop             end             dead, or failed where it was not clean; a start job that waits begins
auto-restart     start job       waits for the restart
                 stop job        dead; the result of the end stays
                 time            a start with all dependencies, however the unit was started before
===============  ==============  ====================================================================

A start of a backend ends the hold and stops what it conflicts with, an unfinished start of the hold
included; the hold is active once every backend has stopped. appliance-run conflicts with nothing, has
no condition and is not restarted. Not modelled: a start that waits for the stop of its own unit counts
for the start limit at each change of that unit.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from appliance.model.errors import UnitError
from appliance.model.names import RUN_UNIT
from appliance.model.observed import EXIT_LEASE_HELD, EXIT_UNFIT, Observed, ObservedUnit
from appliance.model.profile import Catalogue
from appliance.switch.goals import in_the_way
from tests.fakes.clock import NEVER
from tests.fakes.systemd_unit import AT_REST, UP, Unit, UnitState

RUN: Final = RUN_UNIT
"""Key of the unit that runs a command; the backends have their profile's name."""
_RESTART_S: Final = 5.0
_BURST: Final = 5
_BURST_WINDOW_S: Final = 1800.0
_RESTART_PREVENTED: Final = frozenset({EXIT_UNFIT, EXIT_LEASE_HELD})
_CONDITION_FAILED: Final = 255
_TICK_S: Final = 1e-6
"""Time between two changes at one virtual time, whose order systemd's clock would show."""


class Processes(Protocol):
    """Processes that systemd forks and signals."""

    def fork_condition(self, name: str) -> None:
        """Run ExecCondition=."""
        ...

    def fork_main(self, name: str) -> None:
        """Run ExecStart=."""
        ...

    def terminate(self, name: str) -> None:
        """Send SIGTERM to the main process."""
        ...

    def vanish(self, name: str) -> None:
        """Forget the processes of a unit: all have ended, or were killed."""
        ...

    def wake(self, name: str) -> None:
        """Act at the time that was asked for with `FakeSystemd.wake`."""
        ...

    def poll(self) -> None:
        """Look again: something has changed."""
        ...


class FakeSystemd:
    """systemd with the units of a catalogue. `advance` lets time pass."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.has_conflicts = True
        """False: the units have no Conflicts=."""
        self.rivals = {name: sorted(in_the_way(name, catalogue)) for name in catalogue}
        self.processes: Processes
        self.now_s = 1000.0
        self._changes = 0
        self._pids = 0
        self.boots = 0
        self.power_up()

    def power_up(self) -> None:
        """Boot: no unit runs, and none is known to have run."""
        self.boots += 1
        self.going_down = False
        self.hold_active = False
        self.hold_queued = False
        """Whether a start job of the hold waits for backends to stop."""
        self.units = {name: Unit() for name in (*self.catalogue, RUN)}

    # --- what can be seen ------------------------------------------------------------

    def observed(self, names: Iterable[str] | None = None, *, full: bool = True) -> Observed:
        """Return the profiles `names` as D-Bus shows them; all of them by default."""
        chosen = self.catalogue if names is None else names
        return Observed(
            units={n: self.units[n].observed(full=full) for n in chosen if n in self.units},
            hold_active=self.hold_active,
            going_down=self.going_down,
            run=self.units[RUN].observed(full=full),
        )

    def owners(self) -> list[str]:
        """Profiles that have a main process."""
        return [name for name in self.catalogue if self.units[name].main_pid]

    def report(self, name: str, shown: ObservedUnit) -> None:
        """Put a unit into a state, and show `shown` until it changes."""
        unit = self.units[name]
        state = next(
            (s for s in UnitState if s.value == (shown.active, shown.sub)),
            next(s for s in UnitState if s.value[0] is shown.active),
        )
        self.units[name] = Unit(
            state=state,
            result=shown.result,
            exit_status=shown.exit_status,
            main_pid=shown.main_pid,
            starts_s=unit.starts_s,
            due_s=unit.due_s if state is unit.state else NEVER,
            shown=shown,
        )

    # --- jobs ------------------------------------------------------------------------

    def start(self, name: str, *, alone: bool = False) -> None:
        """``systemctl start``; `alone`: with --job-mode=ignore-dependencies."""
        self._refuse_in_shutdown()
        unit = self.units[name]
        if not alone:
            self._stop_conflicting(name)
        if not alone or not unit.is_wanted:
            unit.is_alone = alone
        if unit.state not in UP:
            unit.start_queued = True
        self.settle()

    def stop(self, name: str, cause: str = "by hand") -> None:
        """``systemctl stop``; `cause` is kept in the unit."""
        self._stop(name, cause)
        self.settle()

    def start_hold(self, cause: str = "a hold") -> None:
        """Start the hold; it is active once every backend has stopped."""
        self._refuse_in_shutdown()
        self.hold_queued = not self.hold_active
        for name in self.catalogue if self.has_conflicts else ():
            self._stop(name, cause)
        self.settle()

    def stop_hold(self) -> None:
        """Stop the hold."""
        self.hold_active = self.hold_queued = False

    def shut_down(self) -> None:
        """Begin a shutdown: every unit stops, and nothing can be started."""
        self.going_down = True
        self.stop_hold()
        for name in self.units:
            self._stop(name, "a shutdown")
        self.settle()

    def reset_failed(self, name: str) -> None:
        """``systemctl reset-failed``: forget result and start limit."""
        unit = self.units[name]
        unit.starts_s.clear()
        unit.result, unit.gave_up = "success", False
        if unit.state is UnitState.FAILED:
            self._enter(unit, UnitState.DEAD)

    def _refuse_in_shutdown(self) -> None:
        if self.going_down:
            raise UnitError("the transaction is destructive")

    def _stop_conflicting(self, name: str) -> None:
        if name == RUN or not self.has_conflicts:
            return
        self.stop_hold()
        for rival in self.rivals[name]:
            self._stop(rival, f"{name} was started")

    def _stop(self, name: str, cause: str) -> None:
        unit = self.units[name]
        if unit.start_queued or unit.state not in AT_REST:
            unit.stop_cause = cause
        unit.start_queued = False
        match unit.state:
            case UnitState.CONDITION:
                unit.result = "signal"
                self._rest(name, unit)
            case UnitState.AUTO_RESTART:
                self._enter(unit, UnitState.DEAD)
            case UnitState.START | UnitState.RUNNING:
                self._enter(unit, UnitState.STOP)
                self.processes.terminate(name)
            case _:
                pass

    # --- what processes report -------------------------------------------------------

    def condition_exited(self, name: str, status: int) -> None:
        """ExecCondition= has ended."""
        unit = self.units[name]
        if status == 0:
            self._fork_main(name, unit)
        elif status == _CONDITION_FAILED:
            unit.result = "exit-code"
            self._end(name, unit)
        else:
            unit.result = "exec-condition"
            self.processes.vanish(name)
            self._enter(unit, UnitState.DEAD)

    def notify(self, name: str, text: str, *, loading: bool = False) -> None:
        """``STATUS=``; `loading`: the poller says that the engine loads."""
        self.units[name].status_text, self.units[name].loading = text, loading

    def ready(self, name: str, text: str) -> None:
        """``READY=1``, with a status text."""
        self.notify(name, text)
        self._enter(self.units[name], UnitState.RUNNING)

    def main_exited(self, name: str, status: int = 0, *, signal: int = 0) -> None:
        """The main process has ended with a status, or was killed, and no other process is left."""
        unit = self.units[name]
        if not self._main_ended(unit, status, signal):
            return
        if unit.state is UnitState.STOP:
            self._rest(name, unit)
        else:
            self._end(name, unit)
        self.settle()

    def main_left(self, name: str) -> None:
        """The main process has ended well and left others, which get SIGTERM; `main_exited` ends them."""
        unit = self.units[name]
        self._main_ended(unit, 0, 0)
        self._enter(unit, UnitState.STOP)

    def start_timed_out(self, name: str) -> None:
        """TimeoutStartSec= has passed: SIGKILL."""
        self.units[name].result = "timeout"
        self.main_exited(name, signal=9)

    def start_limit_hit(self, name: str) -> None:
        """The engine has crashed as often as systemd restarts it."""
        unit = self.units[name]
        unit.result, unit.exit_status, unit.gave_up = "exit-code", 1, True
        unit.main_pid, unit.start_queued = 0, False
        self.processes.vanish(name)
        self._enter(unit, UnitState.FAILED)
        self.settle()

    def wake(self, name: str, in_s: float) -> None:
        """Have the processes of `name` act in `in_s` seconds."""
        self.units[name].due_s = self.now_s + in_s

    def _main_ended(self, unit: Unit, status: int, signal: int) -> bool:
        """Record the end of the main process; False: there is nothing in the unit to end."""
        if unit.state in AT_REST or unit.state is UnitState.AUTO_RESTART:
            return False
        if unit.main_pid:
            result = "signal" if signal else "exit-code" if status else "success"
            if result == "success" and unit.state is UnitState.START:
                result = "protocol"
            if unit.result == "success":
                unit.result = result
            unit.main_pid, unit.exit_status = 0, status or signal
            unit.main_exit_s = self._stamp()
        return True

    def _end(self, name: str, unit: Unit) -> None:
        """Restart= decides about a unit that has ended and was not stopped."""
        if name == RUN or unit.exit_status in _RESTART_PREVENTED:
            self._rest(name, unit)
            return
        self.processes.vanish(name)
        self._enter(unit, UnitState.AUTO_RESTART)
        unit.inactive_exit_s = unit.changed_s
        unit.due_s = self.now_s + _RESTART_S

    def _rest(self, name: str, unit: Unit) -> None:
        self.processes.vanish(name)
        failed = unit.result not in {"success", "exec-condition"}
        self._enter(unit, UnitState.FAILED if failed else UnitState.DEAD)

    # --- time ------------------------------------------------------------------------

    def next_due_s(self) -> float:
        """Return when something happens by itself."""
        return min(unit.due_s for unit in self.units.values())

    def advance(self, to_s: float) -> bool:
        """Let time pass until `to_s` or until something happens; True: something happened."""
        due_s = self.next_due_s()
        self.now_s = max(self.now_s, min(due_s, to_s))
        if due_s > to_s:
            return False
        for name, unit in self.units.items():
            if unit.due_s <= self.now_s:
                unit.due_s = NEVER
                self._act(name, unit)
        self.settle()
        return True

    def settle(self) -> None:
        """Let begin what waited, and let processes look again."""
        for name, unit in self.units.items():
            if unit.start_queued and unit.may_begin and not self._waits(name, unit):
                unit.start_queued = False
                self._begin(name, unit)
        if self.hold_queued and not self._is_any_stopping(self.catalogue):
            self.hold_queued, self.hold_active = False, True
        self.processes.poll()

    def _act(self, name: str, unit: Unit) -> None:
        if unit.state is not UnitState.AUTO_RESTART:
            self.processes.wake(name)
            return
        self._stop_conflicting(name)
        unit.start_queued, unit.is_alone = True, False

    def _waits(self, name: str, unit: Unit) -> bool:
        """Tell whether a start job waits for a stop, which comes before whatever it is ordered with."""
        if name == RUN or unit.is_alone or not self.has_conflicts:
            return False
        return self._is_any_stopping(self.rivals[name])

    def _is_any_stopping(self, names: Iterable[str]) -> bool:
        return any(self.units[name].state is UnitState.STOP for name in names)

    def _begin(self, name: str, unit: Unit) -> None:
        unit.starts_s = [s for s in unit.starts_s if s > self.now_s - _BURST_WINDOW_S]
        if name != RUN and len(unit.starts_s) >= _BURST:
            unit.gave_up |= unit.state is UnitState.AUTO_RESTART
            unit.result = "start-limit-hit" if unit.result == "success" else unit.result
            self._enter(unit, UnitState.FAILED)
            return
        unit.starts_s.append(self.now_s)
        unit.result, unit.exit_status, unit.gave_up = "success", 0, False
        unit.status_text = ""
        if name == RUN:
            self._fork_main(name, unit)
        else:
            self._enter(unit, UnitState.CONDITION)
            self.processes.fork_condition(name)

    def _fork_main(self, name: str, unit: Unit) -> None:
        self._pids += 1
        unit.main_pid, unit.stop_cause = self._pids, ""
        self._enter(unit, UnitState.START)
        self.processes.fork_main(name)

    def _enter(self, unit: Unit, state: UnitState) -> None:
        stamp_s = unit.changed_s = self._stamp()
        if unit.state in AT_REST:
            unit.inactive_exit_s = stamp_s
        if unit.state is UnitState.RUNNING:
            unit.active_exit_s = stamp_s
        if state is UnitState.RUNNING:
            unit.since_s = self.now_s
        if state is not UnitState.START:
            unit.loading = False
        unit.state, unit.shown, unit.due_s = state, None, NEVER

    def _stamp(self) -> float:
        self._changes += 1
        return self.now_s + self._changes * _TICK_S
