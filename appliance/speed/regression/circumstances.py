"""Circumstances of the readings of one series: what the evidence says about many of them together.

Numbers are averages over the readings, facts are those of the latest. The circumstances of the good
readings are compared with those of the low ones to find the cause of a loss. One GPU takes about
0.4 kB as JSON.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

from appliance.model.measurements import Evidence, GpuEvidence, RawTimings

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
    """Averages of one GPU; None: the driver does not tell."""

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
    """Clocks that somebody has set."""


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
