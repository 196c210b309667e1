"""Rows of memory in the status document, from the ledger's last sample."""

from collections.abc import Mapping, Sequence

from appliance.model.memory import DeviceMemory, GpuState, Holder, HostMemory
from appliance.model.names import profile_of
from appliance.model.profile import Applied, Catalogue
from appliance.model.status import (
    GpuRow,
    HolderRow,
    MemoryRow,
    NeedRow,
    ProfileMemoryRow,
    RamNeed,
    VramNeed,
)
from appliance.switch.ledger import Ledger
from appliance.switch.memory.peak import ObservedPeak
from appliance.switch.need import BoxNeed, Source, resolve


def memory_row(ram: HostMemory, ledger: Ledger | None, *, now_s: float) -> MemoryRow:
    """Return the memory row of the whole machine; without a sample the GPUs are unknown, not absent."""
    gpus = None if ledger is None else ledger.gpus
    asked = gpus is not None and (gpus.devices or gpus.state is not GpuState.OK)
    return MemoryRow(
        ram_total_bytes=ram.total_bytes,
        ram_available_bytes=ram.available_bytes,
        gpus=[] if ledger is None else [_gpu(d, ledger) for d in ledger.gpus.devices],
        gpu_state=gpus.state.value if gpus is not None and asked else None,
        gpu_error=None if gpus is None else gpus.reason,
        sampled_unix_s=None if ledger is None else ledger.taken_unix_s,
        sampled_age_s=None if ledger is None else round(now_s - ledger.taken_s, 1),
    )


def need_row(need: BoxNeed) -> NeedRow:
    """Return the row of a profile's need."""
    return NeedRow(
        vram=VramNeed(
            source=None if need.source is None else str(need.source),
            bytes=need.vram_bytes,
            gpus={str(index): wanted for index, wanted in need.gpus.items()},
            fraction=need.fraction,
            notes=list(need.notes),
            problem=need.problem if need.source is Source.UNKNOWN else "",
        ),
        ram=RamNeed(source=str(need.ram_source), bytes=need.ram_bytes),
    )


def need_rows(
    catalogue: Catalogue,
    devices: Sequence[DeviceMemory],
    peaks: Mapping[str, ObservedPeak],
    ram_total_bytes: int,
) -> Mapping[str, NeedRow]:
    """Return by name what each profile needs on these GPUs; of the same arguments it is the same."""
    return {
        name: need_row(resolve(applied, peaks.get(name), devices, ram_total_bytes))
        for name, applied in catalogue.items()
    }


def profile_memory(
    catalogue: Catalogue, ledger: Ledger | None, needs: Mapping[str, NeedRow]
) -> Mapping[str, ProfileMemoryRow]:
    """Return by name what each profile needs and, while it runs, holds."""
    return {
        name: _profile_memory(applied, ledger, needs[name]) for name, applied in catalogue.items()
    }


def _profile_memory(applied: Applied, ledger: Ledger | None, need: NeedRow) -> ProfileMemoryRow:
    group = None if ledger is None else ledger.groups.get(applied.name)
    vram = None
    if ledger is not None and group is not None and applied.gpus:
        vram = ledger.vram_bytes(applied.name)
    return ProfileMemoryRow(
        vram_bytes=vram,
        ram_bytes=None if group is None else group.resident_bytes,
        locked_bytes=None if group is None else group.locked_bytes,
        need=need,
    )


def _gpu(device: DeviceMemory, ledger: Ledger) -> GpuRow:
    holders = ledger.holders.get(device.uuid)
    return GpuRow(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        state=device.state.value,
        quality=device.quality.value,
        total_bytes=device.total_bytes,
        free_bytes=device.free_bytes,
        used_bytes=device.used_bytes,
        holders=None if holders is None else [_holder(h) for h in holders],
        unattributed_bytes=device.unattributed_bytes,
    )


def _holder(holder: Holder) -> HolderRow:
    return HolderRow(
        profile=profile_of(holder.unit),
        unit=holder.unit,
        user=holder.user,
        comm=holder.comm,
        pid=holder.pid,
        held_bytes=holder.held_bytes,
    )
