"""Placement of a model that answers: on the GPUs of its profile, locked in memory.

An engine that finds no GPU computes on the CPU and answers all the same; one whose mlock is
refused says so in its log alone, and its pages are evicted under pressure.
"""

from typing import Final

from appliance.model.amounts import size_of_total
from appliance.model.memory import GroupMemory
from appliance.model.names import unit_of
from appliance.model.profile import Applied
from appliance.switch.admission.findings import BoxFacts

LOCKED_SHARE: Final = 0.5
"""Share of a model's resident file that counts as locked: an engine that may lock locks all of
it."""
REFUSED_BYTES: Final = 8 << 20
"""Bytes that systemd lets an engine lock by default (LimitMEMLOCK of systemd.exec(5)): after a
refusal no more are locked."""


def misplaced(applied: Applied, box: BoxFacts) -> str | None:
    """Return why a model that answers is not on its GPUs; None: it is, or that is not known."""
    gpus = applied.gpus
    if not gpus or not box.gpu_holders or set(box.gpu_holders) != set(box.gpu_total_bytes):
        return None
    unit = unit_of(applied.name)
    on = {i for i, holders in box.gpu_holders.items() if any(h.unit == unit for h in holders)}
    if on and (gpus == "all" or on <= set(gpus)):
        return None
    where = "runs on the CPU, on no GPU"
    if on:
        where = f"runs on GPU {min(on - set(gpus))}, which its profile does not list"
    return f"{applied.name} answers, but it {where}"


def unlocked(applied: Applied, group: GroupMemory | None, *, model_bytes: int | None) -> str | None:
    """Return why a model that must be locked in memory is not; None: it is, or that is not known.

    Args:
        applied: The profile.
        group: What its processes have; None: not known.
        model_bytes: Size of the model's file; None: not known.
    """
    if not applied.locks_memory or group is None or not group.resident_bytes:
        return None
    # With GPUs only a part of the file stays in main memory, and that part is not known.
    weights = (
        None if applied.gpus or model_bytes is None else min(model_bytes, group.resident_bytes)
    )
    if weights is None:
        refused = group.locked_bytes <= REFUSED_BYTES < group.resident_bytes
    else:
        refused = group.locked_bytes < weights * LOCKED_SHARE
    if not refused:
        return None
    whole = group.resident_bytes if weights is None else weights
    return (
        f"{applied.name} answers, but its memory is not locked"
        f" ({size_of_total(group.locked_bytes, whole)}):"
        " LimitMEMLOCK of its unit is too low, or mlock was refused"
    )
