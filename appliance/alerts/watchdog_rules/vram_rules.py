"""Rules about memory of the GPUs that belongs to no profile that should have it.

Under a hold, and while an operator's command runs in place of models, foreign memory is the purpose; a
model that is started or stopped moves memory for seconds, so that nothing is judged in an operation.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from appliance.alerts.watchdog_rules.gpu_rules import gpu_subject
from appliance.alerts.watchdog_rules.snapshot import BoxLook, GpuHolder
from appliance.alerts.watchdog_rules.watchdog_memory import WatchdogMemory
from appliance.alerts.watchdog_rules.watchdog_rule import bad, signed
from appliance.model.alerts import BOX, AlertRule, Finding
from appliance.model.amounts import size
from appliance.model.words import Mark

HOLDER_BYTES: Final = 256 << 20
"""Least memory of a foreign holder that is told; a desktop's memory moves by less, and a process that
computes has a context of at least 300 MiB (`speed.causes`)."""
UNATTRIBUTED_BYTES: Final = 1 << 30
"""Least memory without a process that is told: contexts, buffers of the display and what the driver keeps
for itself are some hundred MiB a GPU; a model that was left behind is gigabytes."""
_DRAWING: Final = frozenset(
    {"Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "plasmashell", "sway", "weston"}
    | {"mutter", "gdm-x-session", "sddm", "lightdm", "cinnamon", "xfwm4", "Hyprland", "nvidia-smi"}
)
"""Programs of a desktop: they draw, and hold memory for that."""
_MOST_TOLD: Final = 3


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
        yield signed(AlertRule.FOREIGN_HOLDER, BOX, is_good=_all_tell(lists))


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


def _all_tell(lists: Iterable[Iterable[GpuHolder]]) -> bool | None:
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
