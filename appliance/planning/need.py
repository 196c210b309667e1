"""What a profile needs on this box: the best that is known, GPU by GPU, and where it is from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from appliance.domain.need import Peak, Source, with_allowance
from appliance.domain.profile import Applied
from appliance.planning.wording import size


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxNeed:
    """Memory to be free before a start, in bytes."""

    source: Source | None
    """Of the VRAM; None: it uses no GPU."""
    gpus: Mapping[int, int] = field(default_factory=dict)
    """Wanted on each GPU by NVML index; empty: unknown, or the GPUs are."""
    least_gpus: Mapping[int, int] = field(default_factory=dict)
    """With less than this on a GPU it can never run; empty: not known."""
    vram_bytes: int | None = None
    """Over all GPUs; None: unknown."""
    ram_source: Source = Source.UNKNOWN
    ram_bytes: int | None = None
    """None: unknown."""
    notes: tuple[str, ...] = ()
    """What the source leaves out or rounds up."""
    problem: str = ""
    """Why it is unknown, as a phrase."""
    fraction: float | None = None
    """Of each GPU, where that is the need."""

    @property
    def amount(self) -> str:
        """The VRAM as a sentence names it: ``≈18.6 GiB``."""
        if self.vram_bytes is not None:
            return f"≈{size(self.vram_bytes)}"
        return "an unknown amount" if self.fraction is None else _percent(self.fraction)

    @property
    def label(self) -> str:
        """Where the VRAM is known from: ``estimate: sliding window, upper bound``."""
        if self.source is Source.UNKNOWN:
            return self.problem or "not declared"
        why = "; ".join(self.notes)
        if self.fraction is not None and self.vram_bytes is not None:
            why = _percent(self.fraction)
        return f"{self.source}: {why}" if why else str(self.source)

    @property
    def text(self) -> str:
        """The VRAM for people: ``≈18.6 GiB (observed)``."""
        if self.source is None:
            return "none"
        amount = "unknown" if self.source is Source.UNKNOWN else self.amount
        return f"{amount} ({self.label})"

    @property
    def ram_text(self) -> str:
        """The RAM for people."""
        if self.ram_bytes is None:
            return f"unknown ({self.problem})" if self.problem else "unknown"
        return f"≈{size(self.ram_bytes)} ({self.ram_source})"


def _percent(fraction: float) -> str:
    return f"{round(fraction * 100, 1):g} % of each GPU"


def need_row(need: BoxNeed) -> Mapping[str, object]:
    """`need` as JSON can say it."""
    return {
        "vram": {
            "source": None if need.source is None else str(need.source),
            "bytes": need.vram_bytes,
            "gpus": {str(index): wanted for index, wanted in need.gpus.items()},
            "fraction": need.fraction,
            "notes": list(need.notes),
            "problem": need.problem if need.source is Source.UNKNOWN else "",
        },
        "ram": {"source": str(need.ram_source), "bytes": need.ram_bytes},
    }


def used_gpus(applied: Applied, present: Sequence[int]) -> tuple[int, ...]:
    """Indexes of the GPUs that a profile uses, in its order."""
    return tuple(sorted(present)) if applied.gpus == "all" else applied.gpus


def resolve(
    applied: Applied,
    peak: Peak | None,
    totals_by_index: Mapping[int, int],
    uuids: Mapping[int, str],
    ram_total_bytes: int = 0,
) -> BoxNeed:
    """What `applied` needs here: observed, declared, utilisation, estimate, or unknown.

    Args:
        applied: The profile.
        peak: The most that it was seen to hold, of whatever configuration; None: never seen.
        totals_by_index: Memory of every GPU of the box; empty: they cannot be read.
        uuids: Of the same GPUs.
        ram_total_bytes: Of the box; 0: unknown.
    """
    peak = peak if _applies(applied, peak, totals_by_index, uuids) else None
    ram_source, ram_bytes = _ram(applied, peak, ram_total_bytes)
    used = used_gpus(applied, tuple(totals_by_index))
    if applied.gpus == ():
        problem = applied.estimate_problem
        return BoxNeed(source=None, ram_source=ram_source, ram_bytes=ram_bytes, problem=problem)
    totals = {i: totals_by_index[i] for i in used if i in totals_by_index}
    source, vram_bytes, gpus = _vram(applied, peak, totals, uuids)
    estimate = applied.estimate
    least = None if estimate is None else estimate.least_vram_bytes
    return BoxNeed(
        source=source,
        gpus=gpus,
        least_gpus={} if least is None else shares(applied, least, totals),
        vram_bytes=vram_bytes,
        ram_source=ram_source,
        ram_bytes=ram_bytes,
        notes=() if estimate is None or source is not Source.ESTIMATE else estimate.notes,
        problem=applied.estimate_problem,
        fraction=applied.vram_fraction if source is Source.UTILISATION else None,
    )


def _applies(
    applied: Applied, peak: Peak | None, totals: Mapping[int, int], uuids: Mapping[int, str]
) -> bool:
    """Whether `peak` was seen of this configuration, on these GPUs."""
    if peak is None or not applied.fingerprint or peak.fingerprint != applied.fingerprint:
        return False
    if not totals:
        return True  # nobody can tell which GPUs there are: it is only shown
    used = used_gpus(applied, tuple(totals))
    return set(peak.gpus) == {uuids.get(index, "") for index in used}


def _vram(
    applied: Applied, peak: Peak | None, totals: Mapping[int, int], uuids: Mapping[int, str]
) -> tuple[Source, int | None, Mapping[int, int]]:
    if peak is not None and peak.gpus:
        wanted = {uuid: with_allowance(held) for uuid, held in peak.gpus.items()}
        by_index = {i: wanted[uuids[i]] for i in totals}
        return Source.OBSERVED, sum(wanted.values()), by_index
    declared = applied.need.vram_bytes
    if declared is not None:
        return Source.DECLARED, declared, shares(applied, declared, totals)
    if applied.vram_fraction is not None:
        each = {i: int(applied.vram_fraction * totals[i]) for i in _sharing(applied, totals)}
        return Source.UTILISATION, sum(each.values()) if each else None, each
    if applied.estimate is not None:
        bound = applied.estimate.vram_bytes
        return Source.ESTIMATE, bound, shares(applied, bound, totals)
    return Source.UNKNOWN, None, {}


def _ram(applied: Applied, peak: Peak | None, ram_total_bytes: int) -> tuple[Source, int | None]:
    if peak is not None and peak.ram_bytes is not None:
        return Source.OBSERVED, with_allowance(peak.ram_bytes)
    if applied.need.ram_bytes is not None:
        return Source.DECLARED, applied.need.ram_bytes
    if applied.ram_fraction is not None and ram_total_bytes:
        return Source.UTILISATION, int(applied.ram_fraction * ram_total_bytes)
    if applied.estimate is not None:
        return Source.ESTIMATE, applied.estimate.ram_bytes
    return Source.UNKNOWN, None


def shares(applied: Applied, vram_bytes: int, totals: Mapping[int, int]) -> Mapping[int, int]:
    """`vram_bytes` over the GPUs of `totals`, by `Applied.gpu_split`, rounded up.

    Without a split it follows the size of the GPUs: equal ones get equal parts, and llama.cpp
    itself splits by the memory that is free. Where one has no size that is known, it is even.
    """
    weights = _weights(applied, totals)
    whole = sum(weights.values())
    if not whole:
        return {}
    return {i: -int(-vram_bytes * weight // whole) for i, weight in weights.items()}


def _sharing(applied: Applied, totals: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(i for i, weight in _weights(applied, totals).items() if weight)


def _weights(applied: Applied, totals: Mapping[int, int]) -> Mapping[int, float]:
    if not applied.gpu_split:
        known = all(totals.values())
        return {i: float(total if known else 1) for i, total in totals.items()}
    padded = (*applied.gpu_split, *(0.0 for _ in totals))
    return dict(zip(totals, padded, strict=False))
