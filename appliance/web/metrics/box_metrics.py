"""Metrics of the box and its profiles, from the supervisor's status document."""

from typing import Final

from appliance.model.status import (
    PROFILE_STATES,
    VERDICT_STATES,
    GpuRow,
    ProfileRow,
    StatusDocument,
)
from appliance.model.words import Mark
from appliance.web.metrics import metric_table as table
from appliance.web.metrics.metric_families import MetricFamilies

FOREIGN: Final = "foreign processes"
"""Owner of memory that no profile holds; with a space, which no name of a profile has."""
UNATTRIBUTED: Final = "no process"


def add_box(families: MetricFamilies, status: StatusDocument) -> None:
    """Add the metrics of a status document."""
    families.add_choice(table.VERDICT, VERDICT_STATES, status.verdict.state)
    families.add(table.HOLD, status.hold is not None)
    families.add(table.OPERATION_RUNNING, status.operation is not None)
    if status.memory is not None:
        families.add(table.RAM_TOTAL, status.memory.ram_total_bytes)
        families.add(table.RAM_AVAILABLE, status.memory.ram_available_bytes)
        for gpu in status.memory.gpus:
            _add_gpu_memory(families, gpu)
    for profile in status.profiles:
        _add_profile(families, profile)
    for row in () if status.gateway is None else status.gateway.profiles:
        if row.engine is not None:
            families.add(table.KV_CACHE_USAGE, row.engine.kv_cache, row.name)
            families.add(table.ENGINE_RUNNING, row.engine.running, row.name)
            families.add(table.ENGINE_WAITING, row.engine.queued, row.name)


def _add_profile(families: MetricFamilies, profile: ProfileRow) -> None:
    name, state, memory = profile.name, profile.state, profile.memory
    families.add_choice(table.PROFILE_STATE, PROFILE_STATES, state, name)
    if profile.mark:
        families.add_choice(table.PROFILE_MARK, tuple(Mark), profile.mark, name)
    families.add(table.PROFILE_COMMITTED, profile.committed, name)
    families.add(table.PROFILE_UPTIME, profile.uptime_s, name)
    if state in {"serving", "unresponsive"}:
        families.add(table.PROFILE_STALLED, profile.stall is not None, name)
    families.add(table.PROFILE_RAM, None if memory is None else memory.ram_bytes, name)


def _add_gpu_memory(families: MetricFamilies, gpu: GpuRow) -> None:
    name = str(gpu.index)
    families.add(table.GPU_MEMORY_TOTAL, gpu.total_bytes, name)
    held: dict[str, float] = {}
    for holder in gpu.holders or ():
        if holder.held_bytes is not None:
            owner = holder.profile or FOREIGN
            held[owner] = held.get(owner, 0.0) + holder.held_bytes
    for owner, held_bytes in held.items():
        families.add(table.GPU_MEMORY_USED, held_bytes, name, owner)
    families.add(table.GPU_MEMORY_USED, gpu.unattributed_bytes, name, UNATTRIBUTED)
