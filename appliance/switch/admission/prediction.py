"""Prediction of GPU and main memory after the leaving profiles have ended.

=========================================  ====================================================
what leaves                                is given back
=========================================  ====================================================
nothing on this GPU                        nothing: the reading itself counts
processes of known size                    that, and up to 1 GiB that nobody holds: what a driver
                                           counts a process for is not all that it had
a process of unknown size, or a profile    everything that no staying process is known to hold
that runs and that no driver lists
backends without GPUs                      main memory that the kernel cannot drop, and up to
                                           1 GiB beside it: page tables, buffers
backends with GPUs                         all main memory: what the driver pins for them, no
                                           process shows
=========================================  ====================================================

Where a row is a guess, the larger guess counts: the gate sees what really came back, and decides.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from appliance.model.memory import DeviceMemory, GroupMemory, Holder, HostMemory, Quality
from appliance.model.names import profile_of
from appliance.model.profile import Applied
from appliance.switch.admission.findings import BoxFacts
from appliance.switch.memory.requirement import NEVER_EMPTY_BYTES, usable_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Profiles that end before the start."""

    names: AbstractSet[str] = frozenset()
    """Names of all leaving profiles."""
    running: Sequence[Applied] = ()
    """Leaving profiles that have a unit which is not idle."""
    groups: Mapping[str, GroupMemory] = field(default_factory=dict)
    """Main memory of leaving profiles, by profile; absent: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Memory as the gate will find it, by prediction."""

    devices: tuple[DeviceMemory, ...]
    """GPUs by index; `holders` are those that stay."""
    host: HostMemory

    def unit_of(self, pid: int) -> str:
        """Return the systemd unit of a process that holds memory of a GPU; empty: none."""
        holders = (h for d in self.devices for h in d.holders or ())
        return next((h.unit for h in holders if h.pid == pid), "")


def prediction_of(box: BoxFacts, leaving: Leaving) -> Prediction:
    """Return the memory of the box once `leaving` has ended."""
    now = HostMemory(
        total_bytes=box.ram_total_bytes,
        available_bytes=box.ram_total_bytes
        if box.ram_available_bytes is None
        else box.ram_available_bytes,
    )
    host = replace(now, available_bytes=_available(now, leaving))
    gained = host.available_bytes - now.available_bytes
    return Prediction(
        devices=tuple(_device(d, box, leaving, gained) for d in box.devices.values()), host=host
    )


def _available(now: HostMemory, leaving: Leaving) -> int:
    if not leaving.running:
        return now.available_bytes
    if any(applied.gpus or applied.name not in leaving.groups for applied in leaving.running):
        return now.total_bytes
    back = sum(leaving.groups[applied.name].pinned_bytes for applied in leaving.running)
    return min(now.total_bytes, now.available_bytes + back + NEVER_EMPTY_BYTES)


def _device(
    device: DeviceMemory, box: BoxFacts, leaving: Leaving, gained_bytes: int
) -> DeviceMemory:
    staying = tuple(h for h in device.holders or () if profile_of(h.unit) not in leaving.names)
    if device.quality is Quality.UNIFIED:
        back = gained_bytes
    else:
        back = min(_given_back(device, staying, box, leaving), device.used_bytes)
    return replace(
        device,
        used_bytes=max(0, device.used_bytes - back),
        free_bytes=max(device.free_bytes, min(usable_bytes(device), device.free_bytes + back)),
        holders=None if device.holders is None else staying,
    )


def _given_back(
    device: DeviceMemory, staying: Sequence[Holder], box: BoxFacts, leaving: Leaving
) -> int:
    going = [h for h in device.holders or () if h not in staying]
    sizes = [h.held_bytes for h in going]
    if None in sizes or any(_is_untold(applied, device, box) for applied in leaving.running):
        return device.used_bytes - sum(h.held_bytes or 0 for h in staying)
    back = sum(size or 0 for size in sizes)
    rest = device.unattributed_bytes or 0
    return back + rest if going and rest <= NEVER_EMPTY_BYTES else back


def _is_untold(applied: Applied, device: DeviceMemory, box: BoxFacts) -> bool:
    """Tell whether a profile uses this GPU and no list says how much memory it has there."""
    if not (applied.gpus == "all" or device.index in applied.gpus):
        return False
    listed = (h for d in box.devices.values() for h in d.holders or ())
    return device.holders is None or all(profile_of(h.unit) != applied.name for h in listed)
