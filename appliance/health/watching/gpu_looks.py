"""Looks at the GPUs, from the supervisor's answer: what the rules judge, and where models lie."""

from collections.abc import Mapping

from appliance.alerts.snapshot import GpuError, GpuHolder, GpuLook
from appliance.model.gpus import GpuHealth
from appliance.model.measurements import BoxGpus, GpuEvidence, GpuSample
from appliance.model.memory import GpuState
from appliance.model.profile import Applied

_HIDDEN_BYTES = 256 << 20
"""Memory that no process accounts for from which on the list of processes proves no absence."""


def gpu_looks(found: BoxGpus | None) -> tuple[GpuLook, ...] | None:
    """Return every GPU; None: they could not be read, or there is no driver."""
    if found is None or not found.health:
        return None
    evidence = {sample.index: sample.evidence for sample in found.gpus}
    return tuple(_look(health, evidence.get(health.index)) for health in found.health)


def _look(health: GpuHealth, evidence: GpuEvidence | None) -> GpuLook:
    seen = evidence or GpuEvidence(uuid=health.uuid)
    errors, foreign = health.errors, health.foreign
    return GpuLook(
        uuid=health.uuid,
        index=health.index,
        name=health.name,
        is_lost=health.state is GpuState.LOST,
        errors=None
        if errors is None
        else tuple(GpuError(xid=event.xid, unix_s=event.unix_s) for event in errors),
        recovery_action=health.recovery_action,
        uncorrected_errors=health.uncorrected_errors,
        remap_pending=health.remap_pending,
        remap_failed=health.remap_failed,
        throttle_reasons=seen.throttle_reasons,
        temperature_c=seen.temperature_c,
        power_w=seen.power_w,
        busy_share=health.busy_share,
        memory_busy_share=health.memory_busy_share,
        pcie_width=seen.pcie_width,
        holders=None
        if foreign is None
        else tuple(
            GpuHolder(pid=p.pid, name=p.name, user=p.user, held_bytes=p.held_bytes) for p in foreign
        ),
        unattributed_bytes=health.unattributed_bytes,
    )


def foreign_pids(gpus: tuple[GpuLook, ...] | None) -> tuple[int, ...]:
    """Return the processes of no backend that hold memory of a GPU, each once."""
    return tuple(sorted({h.pid for gpu in gpus or () for h in gpu.holders or ()}))


def used_samples(applied: Applied, found: BoxGpus | None) -> tuple[GpuSample, ...] | None:
    """Return the GPUs that a profile uses; None: it uses none, or one of them cannot be read."""
    if found is None or not applied.gpus or found.state not in {None, GpuState.OK}:
        return None
    if applied.gpus == "all":
        return found.gpus or None
    used = tuple(sample for sample in found.gpus if sample.index in applied.gpus)
    return used if len(used) == len(applied.gpus) else None


def used_uuids(applied: Applied, found: BoxGpus | None) -> tuple[str, ...]:
    """Return the identities of the GPUs that a profile uses, lost ones too; empty: none is known."""
    if found is None or not applied.gpus:
        return ()
    is_any = applied.gpus == "all"
    return tuple(h.uuid for h in found.health if h.uuid and (is_any or h.index in applied.gpus))


def held_bytes(name: str, found: BoxGpus | None) -> int | None:
    """Return the memory of GPUs that a profile's processes hold; None: not known."""
    if found is None or not found.gpus:
        return None
    held = [
        tenant.held_bytes
        for sample in found.gpus
        for tenant in sample.tenants or ()
        if tenant.profile == name
    ]
    is_listed = all(sample.tenants is not None for sample in found.gpus)
    return sum(b or 0 for b in held) if is_listed and None not in held else None


def is_on_its_gpus(applied: Applied, found: BoxGpus | None) -> bool | None:
    """Tell whether a serving model has memory on a GPU of its profile, and on no other.

    None: not known, or it uses no GPU. Where much memory belongs to no listed process, the absence of a
    process proves nothing: its driver may not list all of them.
    """
    used = used_samples(applied, found)
    if found is None or used is None or any(sample.tenants is None for sample in found.gpus):
        return None
    on = {s.index for s in found.gpus for t in s.tenants or () if t.profile == applied.name}
    if on:
        return on <= {sample.index for sample in used}
    hidden = _unattributed(found)
    if any(hidden.get(sample.index, 0) >= _HIDDEN_BYTES for sample in used):
        return None
    return False


def _unattributed(found: BoxGpus) -> Mapping[int, int]:
    return {gpu.index: gpu.unattributed_bytes or 0 for gpu in found.health}
