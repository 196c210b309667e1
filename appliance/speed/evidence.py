"""Evidence of probes about the box: the GPUs around one probe, and the circumstances of many readings.

Readings of the GPUs before, during and after a probe show the state of the profile's own GPUs, the
energy, and other processes with memory on them. The evidence of all readings of one series is kept as its
circumstances: numbers are averages over the readings, facts are those of the latest. Those of the good
readings are compared with those of the low ones to find the cause of a loss. One GPU takes about
0.4 kB as JSON.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

from appliance.model.measurements import (
    BoxGpus,
    Evidence,
    ForeignHolder,
    GpuEvidence,
    GpuSample,
    GpuTenant,
    RawTimings,
)
from appliance.model.profile import Applied

_MOST_HOLDERS: Final = 8
"""Limit of foreign holders that a probe is stored with, the largest first."""


def gpu_evidence(
    applied: Applied,
    *,
    before: BoxGpus | None,
    during: BoxGpus | None,
    after: BoxGpus | None,
    probe_s: float,
) -> Evidence:
    """Return the part of a probe's evidence that readings of the GPUs around it show.

    Args:
        applied: The profile.
        before: Last reading before the probe, of an idle model; None: there was none.
        during: Reading while the engine worked, which shows clocks under load.
        after: Last reading; the energy is unknown if it was taken before the probe's end.
        probe_s: Duration of the probe.
    """
    reading = next((b for b in (during, after, before) if b is not None and b.gpus), None)
    if reading is None:
        return Evidence()
    own = _own(applied, reading)
    idle_w = _total(gpu.evidence.power_w for gpu in _own(applied, before))
    return Evidence(
        gpus=tuple(gpu.evidence for gpu in own),
        foreign_holders=_foreign(own),
        backend_vram_bytes=_held(applied.name, own),
        energy_j=_energy_j(applied, before, after, probe_s=probe_s, idle_w=idle_w or 0.0),
        idle_power_w=idle_w,
        driver=reading.driver,
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


USUAL_READINGS: Final = 12
"""Number of readings that an average of good ones reaches back, about: three hours of them."""
_MOST_GPUS: Final = 16
_DIGITS: Final = 5
_MOST_TEXT: Final = 80
_THERMAL: Final = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
_POWER_BRAKE: Final = frozenset({"hw_power_brake_slowdown"})
_POWER_CAP: Final = frozenset({"sw_power_cap"})
_SETTING: Final = frozenset({"applications_clocks_setting", "sync_boost", "display_clock_setting"})
"""Reasons by kind, as `system.gpus.reader` names them; ``hw_slowdown`` is set with one of two kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCircumstances:
    """Averages of one GPU; None: the driver does not report it."""

    uuid: str
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    pcie_width: float | None = None
    pcie_generation: float | None = None
    thermal: float | None = None
    """Share of the readings in which heat held the clock down, as the next three for other reasons."""
    power_brake: float | None = None
    power_cap: float | None = None
    setting: float | None = None
    """Clocks that a person has set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Averages and facts of a number of readings; None: not known."""

    readings: int = 0
    gpus: tuple[GpuCircumstances, ...] = ()
    vram_bytes: float | None = None
    """GPU memory of the backend."""
    foreign_bytes: float | None = None
    """GPU memory of processes that belong to no profile."""
    foreign_holder: str | None = None
    """Largest of these processes."""
    other_cpu_share: float | None = None
    cpu_throttled_share: float | None = None
    drafts_a_token: float | None = None
    accepted_share: float | None = None
    """Share of the drafts that stood; None also where nothing was drafted."""
    prompt_tokens: float | None = None
    driver: str | None = None
    engine_version: str | None = None
    cpu_backend: str | None = None
    fingerprint: str | None = None


def circumstances_of(evidence: Evidence, raw: RawTimings | None) -> Circumstances:
    """Return the circumstances of one reading; None for `raw`: nothing was measured."""
    largest = max(evidence.foreign_holders, key=lambda holder: holder.held_bytes, default=None)
    holder = None if largest is None else f"{largest.name[:_MOST_TEXT]} (pid {largest.pid})"
    drafted, decoded = (None, 0) if raw is None else (raw.drafted_tokens, raw.decoded_tokens)
    accepted = None if raw is None else raw.accepted_tokens
    return Circumstances(
        readings=1,
        gpus=tuple(map(_gpu_of, evidence.gpus[:_MOST_GPUS])),
        vram_bytes=evidence.backend_vram_bytes,
        foreign_bytes=sum(holder.held_bytes for holder in evidence.foreign_holders)
        if evidence.gpus
        else None,
        foreign_holder=holder,
        other_cpu_share=evidence.other_cpu_share,
        cpu_throttled_share=evidence.cpu_throttled_share,
        drafts_a_token=None if drafted is None or not decoded else drafted / decoded,
        accepted_share=accepted / drafted if drafted and accepted is not None else None,
        prompt_tokens=None if raw is None else raw.prompt_tokens,
        driver=_short(evidence.driver),
        engine_version=_short(evidence.engine_version),
        cpu_backend=_short(evidence.cpu_backend),
        fingerprint=_short(evidence.fingerprint or None),
    )


def joined(before: Circumstances | None, new: Circumstances, most_readings: int) -> Circumstances:
    """Return the circumstances of all readings before, and of a further one.

    Args:
        before: None: of none.
        new: The further one.
        most_readings: Number of readings beyond which later ones count more than earlier ones.
    """
    if before is None:
        return new
    readings = min(before.readings + 1, most_readings)
    known = {gpu.uuid: gpu for gpu in before.gpus}
    gpus = tuple(_average(known.get(gpu.uuid, gpu), gpu, readings) for gpu in new.gpus)
    return replace(_average(before, new, readings), readings=readings, gpus=gpus or before.gpus)


_Averages = TypeVar("_Averages", Circumstances, GpuCircumstances)
_APART: Final = frozenset({"readings", "gpus", "uuid"})


def _average(before: _Averages, new: _Averages, readings: int) -> _Averages:
    """Return the averages with one more reading; facts, and what was not known, are the newest."""
    values: dict[str, Any] = {}
    for name in {field.name for field in fields(before)} - _APART:
        old, now = getattr(before, name), getattr(new, name)
        if isinstance(old, int | float) and isinstance(now, int | float):
            values[name] = _digits(old + (now - old) / readings)
        else:
            values[name] = old if now is None else now
    return replace(before, **values)


def _digits(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _gpu_of(gpu: GpuEvidence) -> GpuCircumstances:
    reasons = gpu.throttle_reasons

    def share(kinds: frozenset[str]) -> float | None:
        if reasons is None:
            return None
        return float(any(reason in kinds for reason in reasons))

    return GpuCircumstances(
        uuid=gpu.uuid,
        sm_clock_mhz=gpu.sm_clock_mhz,
        memory_clock_mhz=gpu.memory_clock_mhz,
        power_w=gpu.power_w,
        temperature_c=gpu.temperature_c,
        pcie_width=gpu.pcie_width,
        pcie_generation=gpu.pcie_generation,
        thermal=share(_THERMAL),
        power_brake=share(_POWER_BRAKE),
        power_cap=share(_POWER_CAP),
        setting=share(_SETTING),
    )


def _short(text: str | None) -> str | None:
    return None if text is None else text[:_MOST_TEXT]
