"""State of one service unit of the fake systemd, and what D-Bus shows of it."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from appliance.model.observed import (
    EXIT_LEASE_HELD,
    EXIT_UNFIT,
    ActiveState,
    ObservedUnit,
    stopped_at,
)
from appliance.wire.sd_notify import is_of_running_engine
from tests.fakes.clock import NEVER


class UnitState(Enum):
    """State of a unit: its ActiveState and its SubState."""

    DEAD = (ActiveState.INACTIVE, "dead")
    FAILED = (ActiveState.FAILED, "failed")
    CONDITION = (ActiveState.ACTIVATING, "condition")
    START = (ActiveState.ACTIVATING, "start")
    RUNNING = (ActiveState.ACTIVE, "running")
    STOP = (ActiveState.DEACTIVATING, "stop-sigterm")
    AUTO_RESTART = (ActiveState.ACTIVATING, "auto-restart")


AT_REST: Final = {UnitState.DEAD, UnitState.FAILED}
STARTING: Final = {UnitState.CONDITION, UnitState.START}
UP: Final = {*STARTING, UnitState.RUNNING}


@dataclass
class Unit:
    """One service unit."""

    state: UnitState = UnitState.DEAD
    start_queued: bool = False
    """Whether a start job waits, for a stop or for the restart."""
    is_alone: bool = False
    """Started last with --job-mode=ignore-dependencies."""
    result: str = "success"
    exit_status: int = 0
    main_pid: int = 0
    status_text: str = ""
    loading: bool = False
    gave_up: bool = False
    """Whether the start limit ended its restarts."""
    due_s: float = NEVER
    """Time when the unit is restarted, or when its processes act next."""
    starts_s: list[float] = field(default_factory=list)
    """Times that count for the start limit."""
    since_s: float = 0.0
    active_exit_s: float = 0.0
    inactive_exit_s: float = 0.0
    main_exit_s: float = 0.0
    changed_s: float = 0.0
    stop_cause: str = ""
    """Cause of the last stop that found the unit up; empty: it has run since."""
    shown: ObservedUnit | None = None
    """Observation that is reported until the state changes; None: the real one."""

    @property
    def has_job(self) -> bool:
        """Whether a job waits or runs."""
        return self.start_queued or self.state in {*STARTING, UnitState.STOP}

    @property
    def may_begin(self) -> bool:
        """Whether it is down, and no pause before a restart is left."""
        is_paused = self.state is UnitState.AUTO_RESTART and self.due_s < NEVER
        return not is_paused and self.state in {*AT_REST, UnitState.AUTO_RESTART}

    @property
    def is_wanted(self) -> bool:
        """Whether it is up, or on its way up."""
        return self.start_queued or self.state in UP

    def observed(self, *, full: bool) -> ObservedUnit:
        """Return the unit as D-Bus shows it; without `full`, as far as the adapter reads it then."""
        active, sub = self.state.value
        shown = self.shown or ObservedUnit(
            active=active,
            sub=sub,
            has_job=self.has_job,
            result="start-limit-hit" if self.gave_up else self.result,
            # Of its units, that are restarted always: see `unit_properties.was_stopped`.
            was_stopped=self.state is UnitState.FAILED
            and not self.gave_up
            and self.result != "start-limit-hit"
            and self.exit_status not in {EXIT_UNFIT, EXIT_LEASE_HELD},
            status_text=self.status_text,
            has_engine_text=is_of_running_engine(self.status_text),
            loading=self.loading,
            main_pid=self.main_pid,
            exit_status=self.exit_status,
            started_unix_s=self.since_s,
            since_unix_s=self.since_s,
            since_s=self.since_s,
            changed_s=self.changed_s,
            stopped_s=stopped_at(
                active_exit_s=self.active_exit_s,
                inactive_exit_s=self.inactive_exit_s,
                main_exit_s=self.main_exit_s,
                changed_s=self.changed_s,
            ),
        )
        if full or shown.active is ActiveState.FAILED:
            return shown
        result, status = shown.result, shown.exit_status
        return ObservedUnit(
            active=shown.active,
            sub=shown.sub,
            has_job=shown.has_job,
            result=result if shown.waits_to_restart else "success",
            exit_status=status if shown.waits_to_restart else 0,
            status_text=shown.status_text if shown.waits_to_restart else "",
            loaded=shown.loaded,
        )
