"""Rules about the box: its daemons and their operations, its driver, its disks, and the services that are watched besides.

A failed operation is an alert of the box where no profile of it is known; a stuck one always is, since it keeps every
model that it stopped from serving.
"""

from collections.abc import Iterable
from typing import Final

from appliance.alerts.rule import (
    BOOT,
    CRITICAL,
    DISKS,
    GPUS,
    MINUTES_S,
    OF_BOX,
    STATUS,
    SUPERVISOR_DOWN,
    UNITS,
    WARNING,
    WATCH,
    OutsideCause,
    Rule,
    bad,
    good,
    profile_subject,
    signed,
)
from appliance.alerts.snapshot import BoxLook, UnitLook
from appliance.alerts.watchdog_memory import LOOP_RESTARTS, WatchdogMemory
from appliance.model.alerts import BOX, AlertRule, Finding, Severity, Subject, SubjectKind
from appliance.model.amounts import duration, size
from appliance.model.memory import GpuState
from appliance.model.observed import ActiveState
from appliance.model.operations import Kind
from appliance.model.status import EndedOperationRow, OperationHead
from appliance.model.wording import joined
from appliance.model.words import Mark

# ── Daemons ─────────────────────────────────────────────────────────────────


def judge_supervisor(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the supervisor answers, and is not restarted again and again."""
    loop = _loop_text(look.supervisor, memory)
    if look.supervisor_answers and not loop:
        yield good(AlertRule.SUPERVISOR_DOWN, BOX)
        return
    yield bad(
        AlertRule.SUPERVISOR_DOWN,
        BOX,
        f"supervisor {loop or 'does not answer'}",
        details=(
            _unit_text(look.supervisor),
            "models that serve continue; nothing brings one back",
        ),
        command="journalctl -u appliance-supervisor -n 50"
        if loop
        else "sudo systemctl start appliance-supervisor",
    )


def judge_gateway(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the gateway answers, and is not restarted again and again."""
    loop = _loop_text(look.gateway, memory)
    has_failed = look.gateway is not None and look.gateway.active is ActiveState.FAILED
    if look.gateway_answers is not False and not loop and not has_failed:
        yield signed(AlertRule.GATEWAY_DOWN, BOX, is_good=look.gateway_answers)
        return
    yield bad(
        AlertRule.GATEWAY_DOWN,
        BOX,
        f"gateway {loop or 'does not answer'}",
        details=(_unit_text(look.gateway), "clients reach no model through it"),
        command="journalctl -u appliance-gateway -n 50"
        if loop
        else "sudo systemctl restart appliance-gateway",
    )


def _loop_text(unit: UnitLook | None, memory: WatchdogMemory) -> str:
    count = 0 if unit is None else memory.restarts().get(unit.unit, 0)
    return f"in a crash loop: {count} restarts in 10 min" if count >= LOOP_RESTARTS else ""


def _unit_text(unit: UnitLook | None) -> str:
    return "" if unit is None else f"{unit.unit}: {unit.active} ({unit.result})"


# ── Driver and disks ────────────────────────────────────────────────────────

_WELL: Final = frozenset({GpuState.OK, GpuState.LOST})
"""States of a driver that works: a lost GPU has a rule of its own."""
_ABSENT: Final = frozenset({GpuState.NO_DRIVER, GpuState.NO_LIBRARY})
"""States that are wrong only on a box whose GPUs have been seen: others have none."""
_REBOOT: Final = "sudo systemctl reboot"


def judge_driver(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the driver of the GPUs answers, and is that of its library."""
    state = look.gpu_state
    if state in _WELL or (state in _ABSENT and not memory.gpus):
        yield good(AlertRule.DRIVER, BOX)
    elif state == GpuState.MISMATCH:
        yield bad(
            AlertRule.DRIVER,
            BOX,
            "GPU driver and library differ after an upgrade: reboot needed",
            details=(look.gpu_problem, "models that serve continue; none can be started"),
            command=_REBOOT,
            severity=Severity.WARNING,
        )
    elif state in _ABSENT or state in {GpuState.HUNG, GpuState.DEVICE}:
        fact = {
            GpuState.HUNG: "the GPU driver does not answer",
            GpuState.DEVICE: "the GPU driver reports a failure",
        }.get(GpuState(state), "the GPU driver is missing")
        yield bad(
            AlertRule.DRIVER,
            BOX,
            fact,
            details=(look.gpu_problem,),
            command="sudo dmesg --level=err,warn",
            severity=Severity.CRITICAL,
        )
    else:
        yield signed(AlertRule.DRIVER, BOX, is_good=None)


DISK_SHARE: Final = 0.05
DISK_BYTES: Final = 5 << 30
"""Free space below which a disk is nearly full, both at once: 5 % of a large disk is room for months of
measurements, and 5 GiB are a quarter of a small one."""


def judge_disks(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the disks of our directories have room, and their stores take rows."""
    del memory
    full = [
        disk
        for disk in look.disks
        if disk.free_bytes < min(DISK_SHARE * disk.total_bytes, DISK_BYTES)
    ]
    if not full and not look.stores:
        yield signed(AlertRule.DISK, BOX, is_good=bool(look.disks) or None)
        return
    least = min(full, key=lambda disk: disk.free_bytes, default=None)
    yield bad(
        AlertRule.DISK,
        BOX,
        f"disk nearly full: {size(least.free_bytes)} free at {least.path}"
        if least is not None
        else "a store takes no rows",
        details=look.stores,
        command=f"df -h {least.path}" if least is not None else "appliance status",
    )


# ── Watched services ────────────────────────────────────────────────────────


def judge_watches(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the services of the settings answer."""
    del memory
    for watch in look.watches:
        subject = Subject(kind=SubjectKind.WATCH, name=watch.name)
        if watch.is_up is not False:
            yield signed(AlertRule.WATCH_DOWN, subject, is_good=watch.is_up)
            continue
        yield bad(
            AlertRule.WATCH_DOWN,
            subject,
            f"down: {watch.detail}" if watch.detail else "down",
        )


_STARTING: Final = frozenset({Kind.SWITCH, Kind.START, Kind.RESTART})
"""Kinds whose end says whether a model can be started: a failed repair shows as `live-down`."""
_TOLD_S: Final = 86_400.0
"""Age from which a failure is no news, such as for an agent that has just been installed."""


def judge_last_operation(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the last start failed; the next success of any ends it."""
    del memory
    last = look.last_operation
    is_start = last is not None and last.kind in _STARTING
    is_old = last is not None and look.unix_s - last.finished_unix_s >= _TOLD_S
    subjects = (BOX, *map(profile_subject, look.profiles))
    if last is None or not is_start or (last.failed and is_old):
        yield from (signed(AlertRule.SWITCH_FAILED, one, is_good=None) for one in subjects)
        return
    name = _name_of(last)
    failed = profile_subject(name) if name in look.profiles else BOX
    for subject in subjects:
        if not last.failed:
            yield good(AlertRule.SWITCH_FAILED, subject)
        elif subject == failed:
            yield _failed(last, look)
        else:
            yield signed(AlertRule.SWITCH_FAILED, subject, is_good=None)


def _name_of(operation: OperationHead) -> str:
    """Return the first of the profiles that were named; empty: none was."""
    return operation.target[0] if operation.target else ""


def _failed(last: EndedOperationRow, look: BoxLook) -> Finding:
    name = _name_of(last)
    profile = look.profiles.get(name)
    is_live = profile is not None and profile.mark in {Mark.LIVE, None}
    return bad(
        AlertRule.SWITCH_FAILED,
        profile_subject(name) if profile is not None else BOX,
        f"{last.kind} failed: {last.outcome}",
        details=(last.message,),
        since_unix_s=last.finished_unix_s,
        command=f"appliance logs {name}" if profile is not None else "appliance operations",
        severity=Severity.CRITICAL if is_live else Severity.WARNING,
    )


def judge_running_operation(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the phase of the operation that runs has overrun its deadline."""
    del memory
    operation = look.operation
    if not look.supervisor_answers:
        yield signed(AlertRule.SWITCH_STUCK, BOX, is_good=None)
    elif (
        operation is None
        or operation.deadline_s is None
        or operation.phase_s <= operation.deadline_s
    ):
        yield good(AlertRule.SWITCH_STUCK, BOX)
    else:
        to = f" to {joined(operation.started)}" if operation.started else ""
        bound = duration(operation.deadline_s)
        yield bad(
            AlertRule.SWITCH_STUCK,
            BOX,
            f"{operation.kind}{to} is stuck in {operation.phase}",
            details=(f"in this phase for {duration(operation.phase_s)}, of at most {bound}",),
            since_unix_s=look.unix_s - operation.phase_s,
            command="appliance cancel",
        )


def judge_nothing(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Find nothing: an operator fires the test."""
    del look, memory
    return ()


RULES: Final = (
    Rule(
        rule=AlertRule.SWITCH_FAILED,
        subjects=(SubjectKind.PROFILE, SubjectKind.BOX),
        severity=CRITICAL,
        good_looks=1,
        judged_by=(STATUS,),
        inhibited_by=SUPERVISOR_DOWN,
        over="was switched to since",
        command="journalctl -u appliance-supervisor -n 50",
        judge=judge_last_operation,
        source="last operation of the supervisor",
    ),
    Rule(
        rule=AlertRule.SWITCH_STUCK,
        subjects=OF_BOX,
        severity=CRITICAL,
        good_looks=1,
        judged_by=(STATUS,),
        ends=BOOT,
        least_mark=Mark.STANDBY,
        inhibited_by=SUPERVISOR_DOWN,
        over="is no longer stuck",
        command="appliance cancel",
        judge=judge_running_operation,
        source="running operation of the supervisor",
    ),
    Rule(
        rule=AlertRule.DRIVER,
        subjects=OF_BOX,
        severity=CRITICAL,
        bad_looks=2,
        of_looks=3,
        judged_by=(GPUS,),
        inhibited_by=SUPERVISOR_DOWN,
        over="driver answers again",
        command="nvidia-smi",
        judge=judge_driver,
        source="NVML nvmlInit in a fresh process",
    ),
    Rule(
        rule=AlertRule.DISK,
        subjects=OF_BOX,
        severity=WARNING,
        bad_s=10 * MINUTES_S,
        good_looks=1,
        good_s=10 * MINUTES_S,
        judged_by=(DISKS,),
        over="has room again",
        command="df -h",
        judge=judge_disks,
        source="statvfs of our directories, and the stores' own word",
    ),
    Rule(
        rule=AlertRule.SUPERVISOR_DOWN,
        subjects=OF_BOX,
        severity=CRITICAL,
        bad_looks=3,
        of_looks=5,
        judged_by=(UNITS,),
        ends=BOOT,
        over="supervisor answers again",
        command="systemctl status appliance-supervisor",
        judge=judge_supervisor,
        source="status stream, NRestarts of the unit",
    ),
    Rule(
        rule=AlertRule.GATEWAY_DOWN,
        subjects=OF_BOX,
        severity=CRITICAL,
        bad_looks=3,
        of_looks=5,
        judged_by=(UNITS,),
        ends=BOOT,
        inhibited_by=frozenset({OutsideCause.OPERATION}),
        over="gateway answers again",
        command="systemctl status appliance-gateway",
        judge=judge_gateway,
        source="the gateway's answer, NRestarts of the unit",
    ),
    Rule(
        rule=AlertRule.WATCH_DOWN,
        subjects=(SubjectKind.WATCH,),
        severity=CRITICAL,
        bad_looks=3,
        of_looks=5,
        judged_by=(WATCH,),
        inhibited_by=frozenset({OutsideCause.INTERNET_DOWN}),
        over="is up again",
        command="appliance status",
        judge=judge_watches,
        source="systemd's unit, or an answer of the URL",
    ),
    Rule(
        rule=AlertRule.TEST,
        subjects=OF_BOX,
        severity=WARNING,
        good_looks=1,
        judged_by=(UNITS,),
        over="has sent its test",
        command="appliance alerts",
        judge=judge_nothing,
        source="an operator",
    ),
)
