"""Rules about isolation: listeners and loopback filters, and GPU memory that belongs to no profile that should have it.

A listener of a retired profile is an alert of the box: the mark says that the profile is not missed, not that everybody
may connect to it.

Under a hold, and while an operator's command runs in place of models, foreign memory is the purpose; a
model that is started or stopped moves memory for seconds, so that nothing is judged in an operation.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from appliance.alerts.gpu_rules import gpu_subject
from appliance.alerts.rule import (
    BOOT,
    CRITICAL,
    GPUS_AT_REST,
    LISTENERS,
    MINUTES_S,
    OF_BOX,
    OF_GPU,
    STOP_OR_BOOT,
    SUPERVISOR_DOWN,
    UNITS,
    WARNING,
    Rule,
    bad,
    good,
    profile_subject,
    signed,
    unknown,
)
from appliance.alerts.snapshot import BoxLook, GpuHolder, ProfileLook
from appliance.alerts.watchdog_memory import WatchdogMemory
from appliance.model.alerts import BOX, AlertRule, Finding, SubjectKind
from appliance.model.amounts import size
from appliance.model.names import profile_of
from appliance.model.wording import joined
from appliance.model.words import Mark
from appliance.wire.helpers import Listener

_MOST_TOLD: Final = 3
_BOX_OWN: Final = ""


def judge_listeners(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether a backend, or another process that holds memory of a GPU, listens to others."""
    del memory
    exposed = _by_owner(look)
    for name, profile in look.profiles.items():
        subject = profile_subject(name)
        if look.listeners is None or (exposed[name] and not _is_told(profile)):
            yield unknown(AlertRule.EXPOSED, subject)
        elif exposed[name]:
            yield _exposed(name, profile, exposed[name])
        else:
            yield good(AlertRule.EXPOSED, subject)
    others = [
        one
        for name, listeners in exposed.items()
        for one in listeners
        if name == _BOX_OWN or not _is_told(look.profiles[name])
    ]
    if look.listeners is None:
        yield unknown(AlertRule.EXPOSED, BOX)
    elif others:
        yield _exposed(_BOX_OWN, None, others)
    else:
        yield good(AlertRule.EXPOSED, BOX)


def _is_told(profile: ProfileLook) -> bool:
    return profile.mark is not Mark.RETIRED


def _by_owner(look: BoxLook) -> Mapping[str, list[Listener]]:
    """Return the listeners that other machines reach, by profile; those of no profile under an empty name."""
    found: defaultdict[str, list[Listener]] = defaultdict(list)
    for one in look.listeners or ():
        if one.is_reachable:
            owner = profile_of(one.unit)
            found[owner if owner and owner in look.profiles else _BOX_OWN].append(one)
    return found


def _exposed(name: str, profile: ProfileLook | None, listeners: Sequence[Listener]) -> Finding:
    first = listeners[0]
    is_filtered = profile is not None and profile.unit is not None and profile.unit.is_filtered
    return bad(
        AlertRule.EXPOSED,
        profile_subject(name) if name else BOX,
        f"exposed: {first.process} listens on {_address(first)}",
        details=(
            *(_owner_text(one) for one in listeners[:_MOST_TOLD]),
            "the filter of its unit still keeps other machines out" if is_filtered else "",
        ),
        command=f"appliance show {name}" if name else f"ps -fp {first.pid}",
    )


def _owner_text(listener: Listener) -> str:
    unit = f", {listener.unit}" if listener.unit else ""
    return f"{_address(listener)}: {listener.process} (pid {listener.pid}{unit})"


def _address(listener: Listener) -> str:
    host = f"[{listener.address}]" if ":" in listener.address else listener.address
    return f"{host}:{listener.port}"


def judge_filters(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether this kernel enforces the loopback filters of the backends that run."""
    del memory
    states = {
        name: profile.unit.is_filtered
        for name, profile in look.profiles.items()
        if profile.unit is not None and profile.unit.is_filtered is not None
    }
    off = sorted(name for name, is_filtered in states.items() if not is_filtered)
    if not off:
        yield signed(AlertRule.FILTER_OFF, BOX, is_good=bool(states) or None)
        return
    yield bad(
        AlertRule.FILTER_OFF,
        BOX,
        f"loopback filter not enforced: {joined(off[:_MOST_TOLD])}",
        details=("other machines may reach these engines if they listen on all addresses",),
        likely="a kernel without BPF for control groups, or a container",
        command=f"systemctl show -p IPEgressBytes appliance-backend-{off[0]}",
    )


HOLDER_BYTES: Final = 256 << 20
"""Least memory of a foreign holder that is wrong; a desktop's memory moves by less, and a process that
computes has a context of at least 300 MiB (`speed.causes`)."""
UNATTRIBUTED_BYTES: Final = 1 << 30
"""Least memory without a process that is wrong: contexts, buffers of the display and what the driver keeps
for itself are some hundred MiB a GPU; a model that was left behind is gigabytes."""
_DRAWING: Final = frozenset(
    {"Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "plasmashell", "sway", "weston"}
    | {"mutter", "gdm-x-session", "sddm", "lightdm", "cinnamon", "xfwm4", "Hyprland", "nvidia-smi"}
)
"""Programs of a desktop: they draw, and hold memory for that."""


def judge_foreign_holders(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether a process of no profile, or one of a retired profile, holds memory of a GPU."""
    del memory
    lists = [gpu.holders for gpu in look.gpus or () if gpu.holders is not None]
    retired = sorted(
        (
            f"{size(profile.held_bytes)} by {profile.name}, which is retired",
            f"appliance stop {profile.name}",
        )
        for profile in look.profiles.values()
        if profile.mark is Mark.RETIRED
        and profile.desired is False
        and profile.held_bytes is not None
        and profile.held_bytes >= HOLDER_BYTES
    )
    foreign = _foreign(holder for holders in lists for holder in holders)
    if look.hold or look.operation is not None or not (lists or retired):
        yield signed(AlertRule.FOREIGN_HOLDER, BOX, is_good=None)
    elif retired or foreign:
        found = [*foreign, *retired]
        yield bad(
            AlertRule.FOREIGN_HOLDER,
            BOX,
            f"GPU memory held: {found[0][0]}",
            details=(f"also {text}" for text, _ in found[1:_MOST_TOLD]),
            command=found[0][1],
        )
    else:
        yield signed(AlertRule.FOREIGN_HOLDER, BOX, is_good=_all_known(lists))


def _foreign(holders: Iterable[GpuHolder]) -> list[tuple[str, str]]:
    """Return the processes that hold much over all GPUs, the largest first, as text, with a command to look at each."""
    held: defaultdict[int, int] = defaultdict(int)
    processes = {}
    for holder in holders:
        if holder.name not in _DRAWING:
            held[holder.pid] += holder.held_bytes or 0
            processes[holder.pid] = holder
    return [
        (
            f"{size(held[pid])} by {processes[pid].name} (pid {pid}, user {processes[pid].user})",
            f"ps -o user,lstart,args -p {pid}",
        )
        for pid in sorted(held, key=lambda pid: (-held[pid], pid))
        if held[pid] >= HOLDER_BYTES
    ]


def _all_known(lists: Iterable[Iterable[GpuHolder]]) -> bool | None:
    """Tell whether the memory of all foreign processes is known; None: it is not."""
    return all(one.held_bytes is not None for holders in lists for one in holders) or None


def judge_unattributed(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether memory of a GPU is in use that no process accounts for."""
    for gpu in look.gpus or ():
        record = memory.gpu(gpu) or gpu
        subject, held = gpu_subject(record), gpu.unattributed_bytes
        if held is None or look.hold or look.operation is not None or held < UNATTRIBUTED_BYTES:
            is_known = held is not None and not look.hold and look.operation is None
            yield signed(AlertRule.UNATTRIBUTED, subject, is_good=is_known or None)
            continue
        yield bad(
            AlertRule.UNATTRIBUTED,
            subject,
            f"{size(held)} of memory that no process accounts for (GPU {gpu.index})",
            details=(gpu.name,),
            likely="a process that ended badly, or one in a container",
            command=f"sudo fuser -v /dev/nvidia{gpu.index}",
        )


RULES: Final = (
    Rule(
        rule=AlertRule.EXPOSED,
        subjects=(SubjectKind.PROFILE, SubjectKind.BOX),
        severity=CRITICAL,
        judged_by=(LISTENERS,),
        ends=STOP_OR_BOOT,
        least_mark=Mark.STANDBY,
        over="is no longer exposed",
        command="ss -ltnp",
        judge=judge_listeners,
        source="the kernel's tables of listening sockets",
    ),
    Rule(
        rule=AlertRule.FILTER_OFF,
        subjects=OF_BOX,
        severity=WARNING,
        bad_looks=2,
        of_looks=2,
        judged_by=(UNITS,),
        ends=BOOT,
        least_mark=Mark.STANDBY,
        over="has its loopback filter",
        command="systemctl status appliance-backend-NAME",
        judge=judge_filters,
        source="IPEgressBytes of the unit (systemd.resource-control(5))",
    ),
    Rule(
        rule=AlertRule.FOREIGN_HOLDER,
        subjects=OF_BOX,
        severity=WARNING,
        bad_s=MINUTES_S,
        good_looks=1,
        good_s=MINUTES_S,
        judged_by=(GPUS_AT_REST,),
        ends=BOOT,
        inhibited_by=SUPERVISOR_DOWN,
        over="is held by nobody else",
        command="appliance status",
        judge=judge_foreign_holders,
        source="NVML: processes with memory of the GPU that belong to no profile",
    ),
    Rule(
        rule=AlertRule.UNATTRIBUTED,
        subjects=OF_GPU,
        severity=WARNING,
        bad_s=10 * MINUTES_S,
        good_looks=1,
        good_s=10 * MINUTES_S,
        judged_by=(GPUS_AT_REST,),
        ends=BOOT,
        inhibited_by=SUPERVISOR_DOWN,
        over="has no unexplained memory",
        command="appliance status",
        judge=judge_unattributed,
        source="NVML: used memory less that of the listed processes",
    ),
)
