"""Rules about the box: its daemons, its driver, its disks, and the services that are watched besides."""

from collections.abc import Iterable
from typing import Final

from appliance.alerts.watchdog_rules.snapshot import BoxLook, UnitLook
from appliance.alerts.watchdog_rules.watchdog_memory import LOOP_RESTARTS, WatchdogMemory
from appliance.alerts.watchdog_rules.watchdog_rule import bad, good, signed
from appliance.model.alerts import BOX, AlertRule, Finding, Severity, Subject, SubjectKind
from appliance.model.amounts import size
from appliance.model.memory import GpuState
from appliance.model.observed import ActiveState

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
"""States of a driver that works: a lost GPU is told of itself."""
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
