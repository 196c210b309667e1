"""Use of the box's GPUs during a probe: state of the profile's own, energy, and who else is on them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.model.measurements import BoxGpus, ForeignHolder, GpuEvidence, GpuSample, GpuTenant
from appliance.model.profile import Applied

_MOST_HOLDERS: Final = 8
"""Limit of foreign holders that a probe is stored with, the largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """Part of a probe's evidence that is about GPUs, with names as in `Evidence`."""

    gpus: tuple[GpuEvidence, ...] = ()
    foreign_holders: tuple[ForeignHolder, ...] = ()
    backend_vram_bytes: int | None = None
    energy_j: float | None = None
    idle_power_w: float | None = None
    driver: str | None = None


def gpu_use(
    applied: Applied,
    *,
    before: BoxGpus | None,
    during: BoxGpus | None,
    after: BoxGpus | None,
    probe_s: float,
) -> GpuUse:
    """Return what readings around a probe tell about the GPUs of its profile.

    Args:
        applied: The profile.
        before: Last reading before the probe, of an idle model; None: there was none.
        during: Reading while the engine worked, which shows clocks under load.
        after: Last reading, which tells no energy if it was taken before the probe's end.
        probe_s: Duration of the probe.
    """
    telling = next((b for b in (during, after, before) if b is not None and b.gpus), None)
    if telling is None:
        return GpuUse()
    own = _own(applied, telling)
    idle_w = _total(gpu.evidence.power_w for gpu in _own(applied, before))
    return GpuUse(
        gpus=tuple(gpu.evidence for gpu in own),
        foreign_holders=_foreign(own),
        backend_vram_bytes=_held(applied.name, own),
        energy_j=_energy_j(applied, before, after, probe_s=probe_s, idle_w=idle_w or 0.0),
        idle_power_w=idle_w,
        driver=telling.driver,
    )


def _own(applied: Applied, box: BoxGpus | None) -> Sequence[GpuSample]:
    if box is None:
        return ()
    return [gpu for gpu in box.gpus if applied.gpus == "all" or gpu.index in applied.gpus]


def _total(values: Iterable[float | None]) -> float | None:
    """Return the sum; None: there are no values, or one is not known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


def _foreign(own: Sequence[GpuSample]) -> tuple[ForeignHolder, ...]:
    """Return the processes of no profile, each once with what it holds on all these GPUs."""
    found: dict[int, ForeignHolder] = {}
    for tenant in _tenants(own):
        if tenant.profile is None:
            earlier = found.get(tenant.pid)
            held = (tenant.held_bytes or 0) + (0 if earlier is None else earlier.held_bytes)
            found[tenant.pid] = ForeignHolder(pid=tenant.pid, name=tenant.name, held_bytes=held)
    return tuple(sorted(found.values(), key=lambda h: (-h.held_bytes, h.pid))[:_MOST_HOLDERS])


def _held(profile: str, own: Sequence[GpuSample]) -> int | None:
    if any(gpu.tenants is None for gpu in own):
        return None
    held = _total(t.held_bytes for t in _tenants(own) if t.profile == profile)
    return None if held is None else int(held)


def _tenants(own: Sequence[GpuSample]) -> Iterable[GpuTenant]:
    return (tenant for gpu in own for tenant in gpu.tenants or ())


def _energy_j(
    applied: Applied,
    before: BoxGpus | None,
    after: BoxGpus | None,
    *,
    probe_s: float,
    idle_w: float,
) -> float | None:
    """Return the energy of the probe; the time between the readings beyond it counts as idle."""
    began = _total(gpu.evidence.energy_j for gpu in _own(applied, before))
    ended = _total(gpu.evidence.energy_j for gpu in _own(applied, after))
    if before is None or after is None or began is None or ended is None:
        return None
    idle_s = after.taken_s - before.taken_s - probe_s
    energy_j = ended - began - idle_w * idle_s
    # Readings within the probe miss a part of it; a driver that was loaded anew counts from zero.
    return energy_j if energy_j > 0 and idle_s >= 0 else None
