"""Snapshot of the box at one look of the watchdog: what the rules judge.

None means that something could not be observed: its rules then find `Sign.UNKNOWN`, never good or bad.
Where a figure comes from is said beside it; documents of people are no source. Sizes are bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from appliance.model.alerts import Subject, SubjectKind
from appliance.model.observed import ActiveState
from appliance.model.speeds import SpeedReport
from appliance.model.status import EndedOperationRow, OperationRow
from appliance.model.words import Mark
from appliance.wire.helpers import Listener


class ReadingKind(StrEnum):
    """Kind of a reading of a look, which may be older than the look."""

    UNITS = "units"
    STATUS = "status"
    """Status document of the supervisor."""
    GPUS = "gpus"
    LISTENERS = "listeners"
    FILES = "files"
    """Installed units."""
    DISKS = "disks"
    SCHEDULE = "schedule"
    """Schedule of the probes."""
    ANSWER = "answer"
    """Answer of an engine on its health path."""
    PROBE = "probe"
    """Last valid probe of a profile."""
    CANARIES = "canaries"
    """Last round of canaries of a profile."""
    WATCH = "watch"
    """Answer of a `[[watch]]` entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLook:
    """Unit as systemd describes it (the health agent reads it on D-Bus itself)."""

    unit: str
    loaded: bool = True
    active: ActiveState = ActiveState.INACTIVE
    sub: str = "dead"
    result: str = "success"
    was_stopped: bool = False
    """Whether somebody stopped the unit, of one in systemd's state ``failed``; False of all others."""
    restarts: int = 0
    """NRestarts: restarts by systemd since the unit was started last."""
    main_pid: int = 0
    active_since_unix_s: float | None = None
    status_text: str = ""
    is_filtered: bool | None = None
    """Whether its loopback filter is enforced: it counts the bytes that it sends (IPEgressBytes of
    systemd.resource-control(5)); None: it does not run, or has no filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileLook:
    """Profile, its unit and its engine."""

    name: str
    mark: Mark | None = None
    """None: the supervisor has not reported it yet."""
    desired: bool | None = None
    """Whether it should serve: committed, and no hold, command or operation takes its place."""
    state: str | None = None
    """As `ProfileState` of the status document."""
    note: str = ""
    """Sentence of the status document about the state."""
    unit: UnitLook | None = None
    answers: bool | None = None
    """Whether its engine answered on its health path at the last look."""
    in_flight: int | None = None
    """Requests that the gateway has at the engine."""
    quiet_s: float | None = None
    """Time in which the engine has owed bytes to the gateway and sent none; None: it owes none."""
    answered_s: float | None = None
    """Time since a look found that the engine had sent bytes to the gateway; None: no look did."""
    idle_s: float | None = None
    """Time in which its processes have used no CPU to speak of."""
    is_on_gpu: bool | None = None
    """Whether the model lies where its profile says; None: not known, or it claims no GPU."""
    held_bytes: int | None = None
    """Memory of GPUs that its processes hold."""
    needs_bytes: int | None = None
    patch_applied: bool | None = None
    """None: it has no patch command, or the outcome is not known."""
    drift: tuple[str, ...] | None = None
    """Lines of the difference between the installed unit and the applied one; empty: none."""
    speed: SpeedReport | None = None
    quality_lost: bool = False
    """Whether a loss of quality is reported that has not ended."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that it claims."""
    began_s: float | None = None
    """Time of the first look that saw this process of its engine; None: it does not run."""
    read_s: Mapping[ReadingKind, float] = field(default_factory=dict)
    """Times of its own readings; one that is missing was made at the look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHolder:
    """Process that holds memory of a GPU and belongs to no profile."""

    pid: int
    name: str
    user: str
    held_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuError:
    """XID error that the driver has reported (NVML event XidCriticalError)."""

    xid: int
    unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLook:
    """GPU as its driver describes it; None: the driver has no such figure (NOT_SUPPORTED)."""

    uuid: str
    index: int
    name: str = ""
    is_lost: bool = False
    errors: tuple[GpuError, ...] | None = None
    """XID errors since the supervisor's start, oldest first."""
    recovery_action: str | None = None
    """``none``, ``gpu-reset``, ``node-reboot``, ``drain-p2p`` or ``drain-and-reset``
    (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)."""
    uncorrected_errors: int | None = None
    """Uncorrectable ECC errors of the device's lifetime."""
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """As `GpuEvidence.throttle_reasons`."""
    temperature_c: int | None = None
    power_w: float | None = None
    busy_share: float | None = None
    """Utilisation, 0 to 1."""
    memory_busy_share: float | None = None
    pcie_width: int | None = None
    widest_pcie: int | None = None
    """Widest link that was seen of it under load."""
    holders: tuple[GpuHolder, ...] | None = None
    """Foreign ones."""
    unattributed_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLook:
    """``[[watch]]`` entry: a URL or a unit, on this box or another."""

    name: str
    mark: Mark
    is_up: bool | None
    detail: str = ""
    """Phrase about what was wrong; never a part of an answer."""
    host: str = ""
    """Name or address of the machine of its URL; empty: it is a unit of this box."""
    read_s: float | None = None
    """Time at which its URL was checked; None: at the look, as a unit is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLook:
    """File system of one of our directories."""

    path: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxLook:
    """The box at one look."""

    unix_s: float
    monotonic_s: float
    supervisor_answers: bool
    """Whether the supervisor's status is of the last 30 s."""
    supervisor: UnitLook | None = None
    gateway: UnitLook | None = None
    gateway_answers: bool | None = None
    hold: bool = False
    """Whether a hold is in force, or an operator's command runs in place of models."""
    operation: OperationRow | None = None
    last_operation: EndedOperationRow | None = None
    profiles: Mapping[str, ProfileLook] = field(default_factory=dict)
    gpus: tuple[GpuLook, ...] | None = None
    """None: the GPUs could not be read, or there is no driver."""
    gpu_state: str | None = None
    """As `GpuState` of the domain."""
    gpu_problem: str = ""
    listeners: tuple[Listener, ...] | None = None
    """Of the backends, and of other processes that hold memory of a GPU."""
    watches: tuple[WatchLook, ...] = ()
    disks: tuple[DiskLook, ...] = ()
    stores: tuple[str, ...] = ()
    """Sentences about stores that take no rows."""
    boot_id: str = ""
    """Kernel's name for this boot; empty: not known."""
    read_s: Mapping[ReadingKind, float] = field(default_factory=dict)
    """Times of the readings on the monotonic clock; one that is missing was made at the look."""

    def read_at(self, reading: ReadingKind, subject: Subject) -> float | None:
        """Return when what a rule judges of a subject was read; None: at this look."""
        if subject.kind is SubjectKind.PROFILE and reading not in self.read_s:
            profile = self.profiles.get(subject.name)
            return None if profile is None else profile.read_s.get(reading)
        if subject.kind is SubjectKind.WATCH:
            return next((one.read_s for one in self.watches if one.name == subject.name), None)
        return self.read_s.get(reading)
