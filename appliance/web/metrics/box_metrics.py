"""Metrics of the box and its profiles, from the supervisor's status document."""

from typing import Final, get_args

from appliance.model.words import Mark
from appliance.status.document import ProfileState, VerdictState
from appliance.web.metrics import metric_table as table
from appliance.web.metrics.metric_families import MetricFamilies
from appliance.wire.json_values import Json, number_in, object_in, objects_in, text_in

PROFILE_STATES: Final = get_args(ProfileState)
VERDICTS: Final = get_args(VerdictState)
FOREIGN: Final = "foreign processes"
"""Owner of memory that no profile holds; with a space, which no name of a profile has."""
UNATTRIBUTED: Final = "no process"


def add_box(families: MetricFamilies, status: Json) -> None:
    """Add the metrics of a status document."""
    families.add_choice(table.VERDICT, VERDICTS, text_in(object_in(status, "verdict"), "state"))
    families.add(table.HOLD, status.get("hold") is not None)
    families.add(table.OPERATION_RUNNING, status.get("operation") is not None)
    memory = object_in(status, "memory")
    families.add(table.RAM_TOTAL, number_in(memory, "ram_total_bytes"))
    families.add(table.RAM_AVAILABLE, number_in(memory, "ram_available_bytes"))
    for gpu in objects_in(memory, "gpus"):
        _add_gpu_memory(families, gpu)
    for profile in objects_in(status, "profiles"):
        _add_profile(families, profile)
    _add_loads(families, object_in(status, "gateway"))


def _add_profile(families: MetricFamilies, profile: Json) -> None:
    name, state = text_in(profile, "name"), text_in(profile, "state")
    families.add_choice(table.PROFILE_STATE, PROFILE_STATES, state, name)
    if mark := text_in(profile, "mark"):
        families.add_choice(table.PROFILE_MARK, tuple(Mark), mark, name)
    families.add(table.PROFILE_COMMITTED, profile.get("committed") is True, name)
    families.add(table.PROFILE_UPTIME, number_in(profile, "uptime_s"), name)
    if state in {"serving", "unresponsive"}:
        families.add(table.PROFILE_STALLED, profile.get("stall") is not None, name)
    families.add(table.PROFILE_RAM, number_in(object_in(profile, "memory"), "ram_bytes"), name)


def _add_gpu_memory(families: MetricFamilies, gpu: Json) -> None:
    index = number_in(gpu, "index")
    if index is None:
        return
    name = f"{index:.0f}"
    families.add(table.GPU_MEMORY_TOTAL, number_in(gpu, "total_bytes"), name)
    held: dict[str, float] = {}
    for holder in objects_in(gpu, "holders"):
        held_bytes = number_in(holder, "held_bytes")
        if held_bytes is not None:
            owner = text_in(holder, "profile") or FOREIGN
            held[owner] = held.get(owner, 0.0) + held_bytes
    for owner, held_bytes in held.items():
        families.add(table.GPU_MEMORY_USED, held_bytes, name, owner)
    families.add(table.GPU_MEMORY_USED, number_in(gpu, "unattributed_bytes"), name, UNATTRIBUTED)


def _add_loads(families: MetricFamilies, gateway: Json) -> None:
    """Add what engines report of their load."""
    for row in objects_in(gateway, "profiles"):
        name, engine = text_in(row, "name"), object_in(row, "engine")
        families.add(table.KV_CACHE_USAGE, number_in(engine, "kv_cache"), name)
        families.add(table.ENGINE_RUNNING, number_in(engine, "running"), name)
        families.add(table.ENGINE_WAITING, number_in(engine, "queued"), name)
