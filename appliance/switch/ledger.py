"""Ledger of memory: holders of each GPU, and the peak of each backend.

A sample becomes part of a peak only where it is sure to be the backend's own:

=========================================  ==================================================
sample                                     what counts
=========================================  ==================================================
the driver lists every process and size    the sum over the processes of the profile's unit
a size of the unit's own is unknown        nothing: memory that a dead process left behind
                                           would look like its own, and a peak that is too
                                           high refuses every later start
the unit holds nothing on its GPUs         nothing: it loads, or it runs where it should not
figures are unified or those of a node     RAM only: the driver's figures are the host's
figures mean nothing                       nothing
no GPU can be read                         nothing
=========================================  ==================================================

RAM counts what cannot be dropped: anonymous, shared and locked memory. The files that a backend
maps count too when it has no GPU, because then it computes from those pages. With GPUs they
are what it has copied there, and count only up to the RAM that its profile declares.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from appliance.model.memory import DeviceMemory, GpuMemory, GroupMemory, Holder, Quality
from appliance.model.names import profile_of
from appliance.model.profile import Applied
from appliance.switch.memory.peak import ObservedPeak

GROWTH_SHARE: Final = 0.01
GROWTH_BYTES: Final = 64 << 20
"""Growth below which a peak is not written again; the larger of the two counts. The memory kept
free for a backend exceeds its peak by several times that."""
MOST_OF_RAM: Final = 0.75
"""Share of RAM up to which mapped files count: files that fill more are as large as the machine
allows, and a need of that size could refuse the next start for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Ledger of all holders at one instant."""

    taken_unix_s: float
    taken_s: float
    """Time of the sample on the monotonic clock."""
    gpus: GpuMemory = field(default_factory=GpuMemory)
    holders: Mapping[str, Sequence[Holder]] = field(default_factory=dict)
    """Holders by the GPU's UUID, largest first; a GPU whose processes are not known is absent."""
    groups: Mapping[str, GroupMemory] = field(default_factory=dict)
    """Main memory of running backends, by profile."""

    def vram_bytes(self, name: str) -> int | None:
        """Return the bytes that profile `name` holds on GPUs with known processes; None: not known."""
        if not self.holders:
            return None
        held = [h.held_bytes for listed in self.holders.values() for h in _own(name, listed)]
        return None if None in held else sum(b or 0 for b in held)


def ledger_of(
    gpus: GpuMemory, groups: Mapping[str, GroupMemory], *, now_unix_s: float, now_s: float
) -> Ledger:
    """Attribute one reading to its holders."""
    return Ledger(
        taken_unix_s=now_unix_s,
        taken_s=now_s,
        gpus=gpus,
        holders={
            d.uuid: sorted(d.holders, key=lambda h: (-(h.held_bytes or 0), h.pid))
            for d in gpus.devices
            if d.holders is not None
        },
        groups=groups,
    )


def _own(name: str, holders: Iterable[Holder]) -> Iterator[Holder]:
    return (holder for holder in holders if profile_of(holder.unit) == name)


def used_devices(applied: Applied, gpus: GpuMemory) -> tuple[DeviceMemory, ...]:
    """Return the GPUs that a profile uses; empty: it uses none, or one of them is missing."""
    if applied.gpus == "all":
        return tuple(gpus.devices)
    found = tuple(d for d in gpus.devices if d.index in applied.gpus)
    return found if len(found) == len(applied.gpus) else ()


def grown(
    peak: ObservedPeak | None, applied: Applied, ledger: Ledger, *, ram_total_bytes: int
) -> ObservedPeak | None:
    """Return the peak after one more sample of a running backend; the same object: no change.

    Args:
        peak: The one so far, of whatever configuration; None: none.
        applied: What runs.
        ledger: The sample.
        ram_total_bytes: Of the machine.
    """
    gpus = _vram(applied, ledger)
    if gpus is None or not applied.fingerprint:
        return peak
    before = peak if peak is not None and peak.fingerprint == applied.fingerprint else None
    ram = _ram(applied, ledger.groups.get(applied.name), ram_total_bytes)
    # Figures of a GPU that was taken out say nothing about the one in its place.
    held = {u: max(b, before.gpus.get(u, 0) if before else 0) for u, b in gpus.items()}
    highest = _larger(ram, before.ram_bytes if before else None)
    if before is not None and (held, highest) == (before.gpus, before.ram_bytes):
        return before
    return ObservedPeak(
        fingerprint=applied.fingerprint,
        gpus=held,
        ram_bytes=highest,
        seen_unix_s=ledger.taken_unix_s,
    )


def worth_keeping(kept: ObservedPeak | None, peak: ObservedPeak) -> bool:
    """Tell whether `peak` exceeds what is `kept` by enough to be written."""
    if kept is None or kept.fingerprint != peak.fingerprint or kept.gpus.keys() != peak.gpus.keys():
        return True
    return _more(kept.ram_bytes, peak.ram_bytes) or any(
        _more(kept.gpus[uuid], held) for uuid, held in peak.gpus.items()
    )


def _more(kept: int | None, now: int | None) -> bool:
    if now is None or kept is None:
        return now is not None
    return now - kept > max(kept * GROWTH_SHARE, GROWTH_BYTES)


def _larger(one: int | None, other: int | None) -> int | None:
    return max((b for b in (one, other) if b is not None), default=None)


def _vram(applied: Applied, ledger: Ledger) -> Mapping[str, int] | None:
    """Return bytes by the UUID of each GPU that the profile uses; None: not in the sample."""
    if not applied.gpus:
        return {}
    used = used_devices(applied, ledger.gpus)
    qualities = {device.quality for device in used}
    if qualities and qualities <= {Quality.UNIFIED, Quality.NUMA}:
        return {}
    if qualities != {Quality.EXACT}:
        return None
    held = {device.uuid: _held(applied.name, device, ledger) for device in used}
    known = {uuid: own for uuid, own in held.items() if own is not None}
    return known if len(known) == len(held) and any(known.values()) else None


def _held(name: str, device: DeviceMemory, ledger: Ledger) -> int | None:
    listed = ledger.holders.get(device.uuid)
    if listed is None:
        return None
    held = [h.held_bytes for h in _own(name, listed)]
    if None in held:
        return None
    # Memory that two processes of the profile share is listed for both.
    return min(sum(b or 0 for b in held), device.used_bytes)


def _ram(applied: Applied, group: GroupMemory | None, ram_total_bytes: int) -> int | None:
    if group is None:
        return None
    files = int(ram_total_bytes * MOST_OF_RAM)
    if applied.gpus:
        files = applied.need.ram_bytes or 0
    return max(group.pinned_bytes, min(group.resident_bytes, files))
