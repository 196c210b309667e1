"""Rules about the health of a GPU.

One incident is told by one rule: a GPU that is lost, or for which the driver asks for a recovery, has its
XID errors in that alert's details, and errors of the memory are told with its counters where those can
be read. The driver's own verdict wins over the tiers of the errors: where it asks for nothing, an error
is told as one of a program, and is over after 10 min.

An XID error has a tier, which says what it asks of a person. Source: NVIDIA's "Xid Catalog" (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, for Ampere and
newer, read in November 2026), column "Immediate Action". Where the driver itself tells a recovery action
(`GpuLook.recovery_action`), its verdict counts, not the tier.

===============  ==================================  ============================================
tier             immediate action of the catalogue   what follows
===============  ==================================  ============================================
``none``         IGNORE, and 45, which each killed   nothing is told
                 process causes
``application``  RESTART_APP                         one program has failed; the GPU is well
``reset``        RESET_GPU, and the workflows of     the GPU has to be reset before it is used
                 48, 74 and 144 to 150, which lead
                 to a reset
``reboot``       RESTART_BM, RESTART_VM              the box has to be started anew
``hardware``     CHECK_MECHANICALS, and those where  the card, its seat or its power cable
                 no repair by software is left       is at fault
===============  ==================================  ============================================
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from appliance.alerts.rule import (
    BOOT,
    CRITICAL,
    GPUS,
    MINUTES_S,
    OF_GPU,
    SUPERVISOR_DOWN,
    WARNING,
    Rule,
    bad,
    good,
    signed,
    unknown,
)
from appliance.alerts.snapshot import BoxLook, GpuError, GpuLook
from appliance.alerts.watchdog_memory import (
    LOADED_SHARE,
    GpuRecord,
    WatchdogMemory,
)
from appliance.model.alerts import AlertRule, Finding, Severity, Subject, SubjectKind


class ErrorTier(StrEnum):
    """Tier of an error; a later one is worse."""

    NONE = "none"
    APPLICATION = "application"
    RESET = "reset"
    REBOOT = "reboot"
    HARDWARE = "hardware"

    @property
    def rank(self) -> int:
        """Return the place of the tier, from the mildest."""
        return list(ErrorTier).index(self)


_CODES: Final[Mapping[ErrorTier, frozenset[int]]] = {
    ErrorTier.NONE: frozenset(
        {14, 37, 38, 43, 44, 45, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141}
        | {152, 153, 154, 159, 160, 161, 162, 163, 164, 165}
    ),
    ErrorTier.APPLICATION: frozenset(
        {8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84}
        | {85, 86, 88, 89, 94, *range(96, 106), *range(126, 136), 139}
    ),
    ErrorTier.RESET: frozenset(
        {46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, *range(144, 151)}
        | {155, 156, 158}
    ),
    ErrorTier.REBOOT: frozenset({79, 151}),
    ErrorTier.HARDWARE: frozenset({54, 157}),
}
_TIERS: Final = {code: tier for tier, codes in _CODES.items() for code in codes}
_NAMES: Final[Mapping[int, str]] = {
    13: "exception in a program's kernel",
    31: "memory page fault of a program",
    46: "the GPU stopped processing",
    48: "uncorrectable memory error",
    54: "auxiliary power is not connected",
    62: "a microcontroller has halted",
    64: "a memory row could not be remapped",
    74: "NVLink error",
    79: "fallen off the bus",
    94: "memory error, contained in one program",
    95: "memory error that may affect every program",
    109: "a context switch took too long",
    119: "its firmware does not answer",
    120: "its firmware has failed",
    140: "memory error that was not recovered",
    143: "the GPU could not be initialised",
    158: "the GPU did not answer in time",
}
MEMORY_CODES: Final = frozenset({48, 63, 64, 92, 94, 95, 140, 171, 172})
"""Errors of the memory, which its error counters and its remapped rows show too."""


def tier_of(code: int) -> ErrorTier:
    """Return the tier of an XID; one that the table does not list counts as an application's."""
    return _TIERS.get(code, ErrorTier.APPLICATION)


def error_text(code: int) -> str:
    """Return an XID as text: ``XID 79 (fallen off the bus)``."""
    return f"XID {code} ({_NAMES[code]})" if code in _NAMES else f"XID {code}"


NO_RECOVERY: Final = "none"
_ECC_TOLD_S: Final = 86_400.0
"""Time for which a memory error keeps its alert: the counter never goes back, and a day without a further one
says that the row was remapped."""
_PROGRAM_ERROR_TOLD_S: Final = 600.0
_IDLE_S: Final = 1800.0
"""Time without load after which a throttled GPU is no longer called so."""
_REBOOT: Final = "sudo systemctl reboot"
_HOLD: Final = "appliance hold"


def gpu_subject(gpu: GpuLook | GpuRecord) -> Subject:
    """Return the subject of a GPU; one without a known UUID is named by its index."""
    return Subject(kind=SubjectKind.GPU, name=gpu.uuid or f"index-{gpu.index}")


def _each(look: BoxLook, memory: WatchdogMemory) -> Iterable[tuple[GpuLook, GpuRecord, Subject]]:
    """Yield each GPU with its record and its subject."""
    for gpu in look.gpus or ():
        record = memory.gpu(gpu)
        if record is not None:
            yield gpu, record, gpu_subject(record)


def _named(fact: str, record: GpuRecord) -> str:
    """Return a fact with the GPU that it is about, which the title of a message only calls a GPU."""
    return f"{fact} (GPU {record.index})"


# ── Lost, failed, to be recovered ───────────────────────────────────────────


def judge_presence(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether a GPU is lost; also one that the driver listed in this boot and lists no more."""
    listed = set()
    for gpu, record, subject in _each(look, memory):
        listed.add(subject)
        if gpu.is_lost:
            yield _lost(subject, record, "fallen off the bus")
        else:
            yield signed(AlertRule.GPU_LOST, subject, is_good=_has_figures(gpu) or None)
    if look.gpus is None:
        return
    for record in memory.gpus:
        if record.is_seen and gpu_subject(record) not in listed:
            yield _lost(gpu_subject(record), record, "listed no more")


def _lost(subject: Subject, record: GpuRecord, what: str) -> Finding:
    return bad(
        AlertRule.GPU_LOST,
        subject,
        _named(f"lost: {what}", record),
        details=(record.name, *(error_text(one.xid) for one in record.errors[-2:])),
        likely="its power, its seat or its PCIe link",
        command=_REBOOT,
        is_proven=True,
    )


def _has_figures(gpu: GpuLook) -> bool:
    """Tell whether the driver reports any figure of a GPU, as it does of one that works."""
    figures = (gpu.power_w, gpu.temperature_c, gpu.busy_share, gpu.pcie_width)
    states = (gpu.throttle_reasons, gpu.recovery_action, gpu.errors, gpu.holders)
    return any(figure is not None for figure in (*figures, *states))


_RECOVERIES: Final[Mapping[str, tuple[str, str]]] = {
    "gpu-reset": ("the driver asks for a reset", _HOLD),
    "node-reboot": ("the driver asks for a reboot", _REBOOT),
    "system-reboot": ("the driver asks for a reboot", _REBOOT),
    "bus-reset": ("the driver asks for a reset of the PCIe bus", _REBOOT),
    "drain-p2p": ("the driver asks that other GPUs leave its memory", _HOLD),
    "drain-and-reset": ("the driver asks for a reset, with other GPUs off its memory", _HOLD),
}


def judge_recovery(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the driver asks for a recovery."""
    for gpu, record, subject in _each(look, memory):
        action = gpu.recovery_action
        if action is None or action == NO_RECOVERY:
            yield signed(AlertRule.GPU_RECOVERY, subject, is_good=None if action is None else True)
            continue
        fact, command = _RECOVERIES.get(action, (f"the driver asks for {action}", _HOLD))
        yield bad(
            AlertRule.GPU_RECOVERY,
            subject,
            _named(fact, record),
            details=(
                record.name,
                *(error_text(one.xid) for one in record.errors[-2:]),
                *_after_hold(command, record),
            ),
            command=command,
            is_proven=True,
        )


def _after_hold(command: str, record: GpuRecord) -> Iterable[str]:
    if command == _HOLD:
        reset = f"sudo nvidia-smi --gpu-reset -i {record.index}"
        yield f"then {reset}; where that is refused, {_REBOOT}"


def judge_errors(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge the XID errors that no other rule covers."""
    for gpu, record, subject in _each(look, memory):
        needs_recovery = gpu.recovery_action not in {None, NO_RECOVERY}
        if gpu.is_lost or needs_recovery or (gpu.errors is None and not record.errors):
            yield unknown(AlertRule.GPU_ERROR, subject)
            continue
        error = _worst(gpu, record, look)
        if error is None:
            yield signed(AlertRule.GPU_ERROR, subject, is_good=None if gpu.errors is None else True)
            continue
        tier = _tier(error, gpu)
        fact, command = _ERROR_TEXTS[tier]
        yield bad(
            AlertRule.GPU_ERROR,
            subject,
            _named(f"{error_text(error.xid)}: {fact}", record),
            details=(record.name, *_users(gpu, look), *_after_hold(command, record)),
            command=command,
            since_unix_s=error.unix_s,
            severity=Severity.WARNING if tier is ErrorTier.APPLICATION else Severity.CRITICAL,
            is_proven=True,
        )


_ERROR_TEXTS: Final[Mapping[ErrorTier, tuple[str, str]]] = {
    ErrorTier.APPLICATION: ("a program has failed", "appliance status"),
    ErrorTier.RESET: ("the GPU needs a reset", _HOLD),
    ErrorTier.REBOOT: ("the box needs a reboot", _REBOOT),
    ErrorTier.HARDWARE: ("the card is at fault", "nvidia-smi -q"),
}


def _tier(error: GpuError, gpu: GpuLook) -> ErrorTier:
    """Return the tier of an error, after the driver's verdict; a card at fault stays one."""
    tier = tier_of(error.xid)
    is_recovered = gpu.recovery_action == NO_RECOVERY
    if is_recovered and tier in {ErrorTier.RESET, ErrorTier.REBOOT}:
        return ErrorTier.APPLICATION
    return tier


def _worst(gpu: GpuLook, record: GpuRecord, look: BoxLook) -> GpuError | None:
    """Return the worst error that still counts, of several the last; None: none does."""
    counts_memory = record.uncorrected_errors is not None
    told = [
        error
        for error in record.errors
        if not (counts_memory and error.xid in MEMORY_CODES)
        and _lasts(error, _tier(error, gpu), look.unix_s)
    ]
    return max(told, key=lambda error: (_tier(error, gpu).rank, error.unix_s), default=None)


def _lasts(error: GpuError, tier: ErrorTier, now_unix_s: float) -> bool:
    if tier is ErrorTier.APPLICATION:
        return now_unix_s - error.unix_s < _PROGRAM_ERROR_TOLD_S
    return tier is not ErrorTier.NONE


def _users(gpu: GpuLook, look: BoxLook) -> Iterable[str]:
    names = sorted(one.name for one in look.profiles.values() if gpu.uuid in one.gpus)
    if names:
        yield f"used by {', '.join(names)}"


def judge_memory_errors(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge memory errors that were not corrected, and rows that wait or failed to be remapped."""
    for gpu, record, subject in _each(look, memory):
        since_s = record.uncorrected_unix_s
        has_grown = since_s is not None and look.unix_s - since_s < _ECC_TOLD_S
        figures = (gpu.uncorrected_errors, gpu.remap_pending, gpu.remap_failed)
        if gpu.remap_failed:
            fact, command = "memory fails: a row could not be remapped, replace the card", _REBOOT
            severity = Severity.CRITICAL
        elif has_grown:
            fact, command = "memory errors that were not corrected", _HOLD
            severity = Severity.CRITICAL
        elif gpu.remap_pending:
            fact, command = "a memory row waits to be remapped by a reset", _HOLD
            severity = Severity.WARNING
        else:
            is_known = any(figure is not None for figure in figures)
            yield signed(AlertRule.ECC, subject, is_good=is_known or None)
            continue
        count = record.uncorrected_errors
        counted = () if not count else (f"uncorrected in the life of the card: {count}",)
        codes = [one.xid for one in record.errors if one.xid in MEMORY_CODES]
        yield bad(
            AlertRule.ECC,
            subject,
            _named(fact, record),
            details=(
                record.name,
                *counted,
                *map(error_text, codes[-1:]),
                *_after_hold(command, record),
            ),
            command=command,
            since_unix_s=since_s if has_grown else None,
            severity=severity,
        )


# ── Slowed down ─────────────────────────────────────────────────────────────

_SLOWED: Final[Mapping[str, str]] = {
    "hw_thermal_slowdown": "too hot, and slowed down by its hardware",
    "sw_thermal_slowdown": "too hot, and slowed down by its driver",
    "hw_power_brake_slowdown": "slowed down by its power supply",
    "hw_slowdown": "slowed down by its hardware",
}
"""Reasons of nvmlDeviceGetCurrentClocksEventReasons that are faults, most telling first. A power cap, a
clock that somebody set and an idle GPU are none."""
_IDLE_REASON: Final = "gpu_idle"
_LOOK_AT_IT: Final = "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE"


def judge_throttling(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether a GPU under load is slowed down."""
    for gpu, record, subject in _each(look, memory):
        reasons = gpu.throttle_reasons
        slowed = [text for reason, text in _SLOWED.items() if reason in (reasons or ())]
        if reasons is None or (not _is_loaded(gpu) and (slowed or not _rests(record, memory))):
            yield unknown(AlertRule.THROTTLE, subject)
        elif slowed:
            degrees = () if gpu.temperature_c is None else (f"{gpu.temperature_c} °C",)
            watts = () if gpu.power_w is None else (f"{gpu.power_w:.0f} W",)
            yield bad(
                AlertRule.THROTTLE,
                subject,
                _named(slowed[0], record),
                details=(record.name, ", ".join((*degrees, *watts))),
                command=_LOOK_AT_IT,
            )
        else:
            yield good(AlertRule.THROTTLE, subject)


def _is_loaded(gpu: GpuLook) -> bool:
    if gpu.busy_share is None:
        return gpu.throttle_reasons is not None and _IDLE_REASON not in gpu.throttle_reasons
    return gpu.busy_share >= LOADED_SHARE


def _rests(record: GpuRecord, memory: WatchdogMemory) -> bool:
    """Tell whether a GPU was under load in this boot, and has not been for long."""
    return record.loaded_s is not None and memory.monotonic_s - record.loaded_s >= _IDLE_S


def judge_links(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether a PCIe link under load is as wide as it has been."""
    for gpu, record, subject in _each(look, memory):
        width, widest = gpu.pcie_width, record.widest_pcie
        is_loaded = gpu.busy_share is not None and gpu.busy_share >= LOADED_SHARE
        if width is None or widest is None or not is_loaded:
            yield unknown(AlertRule.PCIE, subject)
        elif width < widest:
            yield bad(
                AlertRule.PCIE,
                subject,
                _named(f"its PCIe link has {width} lanes, {widest} before", record),
                details=(record.name,),
                likely="the card's seat, its riser or a setting of the firmware",
                command="nvidia-smi --format=csv --query-gpu=index,pcie.link.width.current",
            )
        else:
            yield good(AlertRule.PCIE, subject)


_CAUSES: Final = SUPERVISOR_DOWN | {AlertRule.DRIVER, AlertRule.GPU_LOST}

RULES: Final = (
    Rule(
        rule=AlertRule.GPU_LOST,
        subjects=OF_GPU,
        severity=CRITICAL,
        good_looks=3,
        judged_by=(GPUS,),
        inhibited_by=SUPERVISOR_DOWN | {AlertRule.DRIVER},
        over="is back",
        command="nvidia-smi",
        judge=judge_presence,
        source="NVML: error GPU_IS_LOST, or a device that is listed no more",
    ),
    Rule(
        rule=AlertRule.GPU_ERROR,
        subjects=OF_GPU,
        severity=CRITICAL,
        good_looks=3,
        judged_by=(GPUS,),
        ends=BOOT,
        inhibited_by=_CAUSES,
        over="has no new errors",
        command="journalctl -k -g Xid",
        judge=judge_errors,
        source="NVML event XidCriticalError; tiers of NVIDIA's Xid Catalog",
    ),
    Rule(
        rule=AlertRule.GPU_RECOVERY,
        subjects=OF_GPU,
        severity=CRITICAL,
        good_looks=3,
        judged_by=(GPUS,),
        inhibited_by=_CAUSES,
        over="needs no recovery",
        command="nvidia-smi -q",
        judge=judge_recovery,
        source="NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
    ),
    Rule(
        rule=AlertRule.ECC,
        subjects=OF_GPU,
        severity=WARNING,
        good_looks=3,
        judged_by=(GPUS,),
        inhibited_by=_CAUSES,
        over="has no new memory errors",
        command="nvidia-smi -q -d ECC,ROW_REMAPPER",
        judge=judge_memory_errors,
        source="NVML: total uncorrected errors, remapped rows",
    ),
    Rule(
        rule=AlertRule.THROTTLE,
        subjects=OF_GPU,
        severity=WARNING,
        bad_s=10 * MINUTES_S,
        good_looks=1,
        good_s=10 * MINUTES_S,
        judged_by=(GPUS,),
        ends=BOOT,
        inhibited_by=_CAUSES,
        over="is no longer throttled",
        command="nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
        judge=judge_throttling,
        source="NVML nvmlDeviceGetCurrentClocksEventReasons",
    ),
    Rule(
        rule=AlertRule.PCIE,
        subjects=OF_GPU,
        severity=WARNING,
        bad_s=10 * MINUTES_S,
        good_looks=1,
        good_s=10 * MINUTES_S,
        judged_by=(GPUS,),
        inhibited_by=_CAUSES,
        over="has its full PCIe link",
        command="nvidia-smi -q -d PCIE",
        judge=judge_links,
        source="NVML nvmlDeviceGetCurrPcieLinkWidth, under load",
    ),
)
