"""The status document's account of memory, from the ledger's last sample."""

from collections.abc import Mapping

from appliance.domain.memory import DeviceMemory, GpuState, HostMemory
from appliance.domain.profile import Catalogue
from appliance.planning.ledger import Holding, Ledger

Row = Mapping[str, object]


def memory_row(ram: HostMemory, ledger: Ledger | None) -> Row:
    """The whole machine's; without a sample the GPUs are unknown, not absent."""
    gpus = None if ledger is None else ledger.gpus
    asked = gpus is not None and (gpus.devices or gpus.state is not GpuState.OK)
    return {
        "ram_total_bytes": ram.total_bytes,
        "ram_available_bytes": ram.available_bytes,
        "gpus": [] if ledger is None else [_gpu(d, ledger) for d in ledger.gpus.devices],
        "gpu_state": gpus.state.value if gpus is not None and asked else None,
        "gpu_error": None if gpus is None else gpus.reason,
        "sampled_unix_s": None if ledger is None else ledger.taken_unix_s,
    }


def profile_memory(catalogue: Catalogue, ledger: Ledger | None) -> Mapping[str, Row]:
    """What each running backend holds, by profile; absent: it does not run, or nobody knows."""
    if ledger is None:
        return {}
    return {
        name: {
            "vram_bytes": ledger.vram_bytes(name) if applied.gpus else None,
            "ram_bytes": ledger.groups[name].resident_bytes,
            "locked_bytes": ledger.groups[name].locked_bytes,
        }
        for name, applied in catalogue.items()
        if name in ledger.groups
    }


def _gpu(device: DeviceMemory, ledger: Ledger) -> Row:
    holdings = ledger.holdings.get(device.uuid)
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "state": device.state.value,
        "quality": device.quality.value,
        "total_bytes": device.total_bytes,
        "free_bytes": device.free_bytes,
        "used_bytes": device.used_bytes,
        "holders": None if holdings is None else [_holder(h) for h in holdings],
        "unattributed_bytes": device.unattributed_bytes,
    }


def _holder(holding: Holding) -> Row:
    return {
        "profile": holding.profile,
        "unit": holding.unit,
        "user": holding.user,
        "comm": holding.comm,
        "pid": holding.pid,
        "held_bytes": holding.held_bytes,
    }
