"""Memory of each GPU as a bar of its holders."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from appliance.model.amounts import size, size_of_total
from appliance.model.status import GpuRow, MemoryRow
from appliance.model.wording import joined
from appliance.presentation.box_texts import holder_amounts
from appliance.wire.json_values import Json, number_in, object_in, objects_in, text_in, texts_in

_SHADES: Final = 6
"""Number of fills of the style sheet for holders (``fill-0`` …)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShare:
    """Part of a bar."""

    label: str
    amount: str
    """Size in text; empty: the driver does not say."""
    fill: str
    """Class of the style sheet."""
    begin: float
    """Per cent of the bar, as `width`."""
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBar:
    """One GPU."""

    title: str
    amount: str
    """Used of total, in text; empty: not known."""
    shares: tuple[MemoryShare, ...]
    note: str = ""
    """Heat, power and what slows it, in text; empty: not known."""


def memory_bars(memory: MemoryRow | None, gpus: Json | None) -> tuple[MemoryBar, ...]:
    """Return a bar for each GPU.

    Args:
        memory: Section `memory` of the status document.
        gpus: Answer of the supervisor to `gpus`; None: there is none.
    """
    samples = [object_in(sample, "evidence") for sample in objects_in(gpus or {}, "gpus")]
    evidence = {text_in(sample, "uuid"): sample for sample in samples}
    found = () if memory is None else memory.gpus
    return tuple(_bar(gpu, evidence.get(gpu.uuid, {}), several=len(found) > 1) for gpu in found)


def _bar(gpu: GpuRow, sample: Json, *, several: bool) -> MemoryBar:
    name, total = gpu.name or "GPU", gpu.total_bytes
    return MemoryBar(
        title=f"GPU {gpu.index}, {name}" if several else name,
        amount=size_of_total(gpu.used_bytes, total) if total else "",
        shares=tuple(_shares(gpu)),
        note=" · ".join(_readings(gpu, sample)),
    )


def _shares(gpu: GpuRow) -> Iterable[MemoryShare]:
    begin, shade = 0.0, 0
    for holder in holder_amounts(gpu):
        part = 100 * (holder.held_bytes or 0.0) / gpu.total_bytes if gpu.total_bytes > 0 else 0.0
        width = max(0.0, min(part, 100 - begin))
        fill = f"fill-{shade % _SHADES}" if holder.is_known else "fill-rest"
        shade += holder.is_known
        amount = "" if holder.held_bytes is None else size(holder.held_bytes)
        yield MemoryShare(
            label=holder.label,
            amount=amount,
            fill=fill,
            begin=round(begin, 2),
            width=round(width, 2),
        )
        begin += width


def _readings(gpu: GpuRow, sample: Json) -> Iterable[str]:
    if gpu.state not in {"", "ok"}:
        yield gpu.state
    if (heat := number_in(sample, "temperature_c")) is not None:
        yield f"{heat:.0f} °C"
    if (power := number_in(sample, "power_w")) is not None:
        yield f"{power:.0f} W"
    if reasons := texts_in(sample, "throttle_reasons"):
        yield f"slowed: {joined([reason.replace('_', ' ') for reason in reasons])}"
