"""Snapshot of the units on the box at one instant."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

EXIT_UNFIT: Final = 78
"""Exit status of the wrapper when no restart helps (launch.backend)."""
EXIT_LEASE_HELD: Final = 79
"""Exit status of the wrapper when another process holds the claim (launch.backend)."""


class ActiveState(StrEnum):
    """ActiveState of a unit, as systemd names it."""

    INACTIVE = "inactive"
    ACTIVATING = "activating"
    ACTIVE = "active"
    RELOADING = "reloading"
    DEACTIVATING = "deactivating"
    FAILED = "failed"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedUnit:
    """State of one backend unit, read over D-Bus (org.freedesktop.systemd1)."""

    active: ActiveState = ActiveState.INACTIVE
    sub: str = "dead"
    has_job: bool = False
    """Whether a start or stop job is queued or running."""
    result: str = "success"
    """Result of the last run: success, exit-code, signal, timeout, exec-condition …"""
    status_text: str = ""
    """Status text of the unit's gate, wrapper or poller, for people."""
    has_engine_text: bool = False
    """Whether the status text is that of an engine that loads or is ready (wire.sd_notify)."""
    loading: bool = False
    """Whether the unit's poller says that the engine's process runs and is not ready
    (wire.sd_notify)."""
    main_pid: int = 0
    """PID of the main process; 0: there is none."""
    exit_status: int = 0
    restarts: int = 0
    """Number of times that systemd has started the unit again by itself since it was started."""
    started_unix_s: float = 0.0
    """Unix seconds when the main process began; 0: not known, or never."""
    since_unix_s: float = 0.0
    """Unix seconds when the unit last became active; 0: never in this boot."""
    since_s: float = 0.0
    """Seconds on the monotonic clock when the unit last became active; that clock is never set."""
    changed_s: float = 0.0
    """Seconds on the monotonic clock of the last change of state; 0: never in this boot, or
    forgotten."""
    stopped_s: float = 0.0
    """Seconds on the monotonic clock when the last stop began; without a stop, of the last change
    of state."""
    was_stopped: bool = False
    """Whether somebody stopped the unit, of one in systemd's state ``failed``; False of all others."""
    loaded: bool = True
    """Whether the unit file exists."""
    needs_reload: bool = False
    """Whether the unit file or its profile changed since systemd read it."""

    @property
    def waits_to_restart(self) -> bool:
        """Whether systemd will start the unit again by itself; it neither runs nor is stopped."""
        return self.active is ActiveState.ACTIVATING and self.sub.startswith("auto-restart")

    @property
    def was_ready(self) -> bool:
        """Whether the unit has become active since its main process began."""
        return self.since_unix_s > 0 and self.since_unix_s >= self.started_unix_s

    @property
    def ended_cleanly(self) -> bool:
        """Whether the unit's process ended by itself in a way that systemd calls clean.

        systemd restarts no unit that was stopped, so a unit that waits for its restart was not. Status 0
        and SIGHUP, SIGINT, SIGTERM, SIGPIPE are clean; before READY systemd calls them "protocol".
        """
        return self.result == "protocol" or (self.result == "success" and self.waits_to_restart)

    @property
    def ended_badly(self) -> bool:
        """Whether systemd says that the unit's main process failed or was killed."""
        return self.result in {"exit-code", "signal", "core-dump"}

    @property
    def engine_ended(self) -> bool:
        """Whether an engine ran and ended without having been stopped; a gate is not an engine."""
        failed = self.exit_status != 0 and self.result not in {"success", "exec-condition"}
        return failed or self.ended_cleanly

    @property
    def serving(self) -> bool:
        """Whether the unit is up, by its own readiness notification."""
        return self.active in {ActiveState.ACTIVE, ActiveState.RELOADING}

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing is queued: the control group is empty."""
        return (
            self.active in {ActiveState.INACTIVE, ActiveState.FAILED}
            and self.main_pid == 0
            and not self.has_job
        )


_NOT_INSTALLED: Final = ObservedUnit(loaded=False)


def is_stop(*, active_exit_s: float, inactive_exit_s: float, main_exit_s: float) -> bool:
    """Tell from systemd's monotonic timestamps whether a stop ended a unit's main process.

    A stop takes the unit out of the active state before its process ends, a crash afterwards.
    """
    return 0 < active_exit_s <= main_exit_s and inactive_exit_s <= active_exit_s


def stopped_at(
    *, active_exit_s: float, inactive_exit_s: float, main_exit_s: float, changed_s: float
) -> float:
    """Return when the stop of a unit began, from systemd's monotonic timestamps.

    Of a unit that was stopped while it started, or in the pause before a restart, only the time of its
    last change is known.
    """
    stopped = is_stop(
        active_exit_s=active_exit_s, inactive_exit_s=inactive_exit_s, main_exit_s=main_exit_s
    )
    return active_exit_s if stopped else changed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Report of a command's run that its launcher left when the command ended."""

    ran: bool
    """Whether the command was begun."""
    operation: int | None = None
    """ID of the command's operation; None: the launcher ended before it had read its ticket."""
    text: str
    """Sentence part that says how the command ended ("with status 0 after 12 min") or why it was
    not begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Backend units by profile name, and the system around them."""

    units: Mapping[str, ObservedUnit]
    hold_active: bool = False
    """Whether appliance-hold.service is active."""
    going_down: bool = False
    """Whether the system is stopping: a failure seen then says nothing about a model."""
    run: ObservedUnit = field(default_factory=ObservedUnit)
    """State of appliance-run.service: active while a command runs, activating while it waits for
    memory."""

    def unit(self, name: str) -> ObservedUnit:
        """Return the unit of profile `name`; an inactive unit when systemd does not know it."""
        return self.units.get(name, _NOT_INSTALLED)

    def busy(self) -> tuple[str, ...]:
        """Return the profiles whose unit runs, starts or stops, sorted."""
        return tuple(sorted(n for n, u in self.units.items() if not u.idle))

    def serving(self) -> tuple[str, ...]:
        """Return the profiles whose unit is up, sorted."""
        return tuple(sorted(n for n, u in self.units.items() if u.serving))
