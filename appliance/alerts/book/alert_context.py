"""Arguments of an evaluation besides book and findings, and its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.alerts.book.alert_state import AlertBook
from appliance.alerts.watchdog_rules.snapshot import OperationLook
from appliance.model.alerts import Notice, Subject, Transition
from appliance.model.words import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """Moment of an evaluation on three clocks."""

    unix_s: float
    monotonic_s: float
    """CLOCK_MONOTONIC, which stands still in a suspend."""
    boot_s: float
    """CLOCK_BOOTTIME, which goes on; both begin anew with a boot."""
    boot_id: str = ""
    """Kernel's name for this boot; empty: not known, and a clock that went back is a boot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPolicy:
    """Settings ``[alerts]`` that the state machine goes by."""

    time_zone: str = ""
    """IANA name of the zone of quiet hours and windows; empty: that of the box."""
    quiet_from: str | None = None
    """Beginning of the quiet hours in local time, ``HH:MM``; None: there are none."""
    quiet_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertCircumstances:
    """Facts about the box that decide who is told of a finding."""

    marks: Mapping[Subject, Mark] = field(default_factory=dict)
    """Marks of profiles and watches; a subject without one counts as live."""
    existing: frozenset[Subject] | None = None
    """Profiles and watches that exist; alerts of others are cancelled. None: not known."""
    operation: OperationLook | None = None
    supervisor_down: bool = False
    internet_down_since: float | None = None
    """Unix time since which this box has reached no other machine; None: it reaches them."""
    remote_watches: frozenset[str] = frozenset()
    """Names of the watches whose URL is on another machine."""
    profile_gpus: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the GPUs that each profile claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of an evaluation or of an operator's action; all of it is stored in one transaction."""

    book: AlertBook
    transitions: tuple[Transition, ...] = ()
    notices: tuple[Notice, ...] = ()
    """Notices for the targets; the transition of each is in `transitions` too."""
    cancelled: tuple[str, ...] = ()
    """Alerts whose unsent messages are taken back, before the notices of this evaluation are queued."""
    postponed: tuple[str, ...] = ()
    """Alerts whose unsent messages are of an earlier boot: they wait until `postponed_unix_s`, by when
    the alerts are judged anew."""
    postponed_unix_s: float = 0.0
