"""Preflight: everything that speaks against a change, before anything is touched."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from appliance.domain.claims import ALL_GPUS
from appliance.domain.memory import Holder
from appliance.domain.names import profile_of
from appliance.domain.observed import Observed
from appliance.domain.operations import Goal, Kind
from appliance.domain.profile import Applied, Catalogue, Mark
from appliance.planning.goals import in_the_way
from appliance.planning.wording import joined

GIB: Final = 1 << 30


class Level(StrEnum):
    """How much a finding weighs."""

    OK = "ok"
    WARN = "warn"
    REFUSE = "refuse"


class Presence(StrEnum):
    """Whether something is there. UNKNOWN: this process may not look."""

    PRESENT = "present"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence of a preflight."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFacts:
    """What the host says about one profile."""

    model: Presence = Presence.PRESENT
    engine: Presence = Presence.PRESENT
    port_user: str | None = None
    """User whose process listens on the profile's port; None: nobody does."""
    edited: bool = False
    """The profile's file is not the one that was applied."""
    model_bytes: int | None = None
    """Size of the model's file; None: it is no single file, or cannot be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxFacts:
    """What the host has."""

    ram_total_bytes: int
    gpu_total_bytes: Mapping[int, int] = field(default_factory=dict)
    """By NVML index."""
    gpu_holders: Mapping[int, Sequence[Holder]] = field(default_factory=dict)
    """Processes with memory on a GPU, by NVML index; a GPU whose list cannot be read is absent."""
    gpu_error: str | None = None
    """Why the GPUs cannot be read; None: they can (or there is no driver and none is needed)."""


def findings(
    kind: Kind,
    goal: Goal,
    *,
    catalogue: Catalogue,
    observed: Observed,
    marks: Mapping[str, Mark],
    facts: Mapping[str, ProfileFacts],
    box: BoxFacts,
) -> tuple[Finding, ...]:
    """Every finding on the profiles that `goal` starts; REFUSE ones stop the operation."""
    found: list[Finding] = []
    for name in goal.start:
        applied = catalogue[name]
        found += _start_findings(kind, name, goal, catalogue=catalogue, observed=observed)
        if marks.get(name, applied.first_mark) is Mark.RETIRED:
            found.append(_refuse(f"{name} is retired: appliance mark {name} standby"))
        found += _host_findings(applied, facts.get(name, ProfileFacts()), goal, catalogue, observed)
        found += _gpu_findings(applied, box)
    found += _ram_findings(goal, catalogue, observed, box)
    return tuple(found)


def refusal(found: Iterable[Finding]) -> str:
    """The refusing findings as one text, a line each; empty: admitted."""
    return "\n".join(f.text for f in found if f.level is Level.REFUSE)


def _refuse(text: str) -> Finding:
    return Finding(level=Level.REFUSE, text=text)


def _start_findings(
    kind: Kind, name: str, goal: Goal, *, catalogue: Catalogue, observed: Observed
) -> Iterable[Finding]:
    if not observed.unit(name).loaded:
        yield _refuse(f"the unit of {name} is not installed: sudo appliance apply")
    for rival in sorted(in_the_way(name, catalogue)):
        if rival in goal.start:
            yield _refuse(f"{name} and {rival} can never run together")
        elif rival not in goal.stop and not observed.unit(rival).idle:
            yield _refuse(
                f"{rival} runs on {_devices(catalogue[rival])}; {kind} never evicts:"
                f" appliance switch {name}"
            )


def _devices(applied: Applied) -> str:
    return " and ".join(sorted(applied.claim.devices)) or "no device"


def _host_findings(
    applied: Applied, facts: ProfileFacts, goal: Goal, catalogue: Catalogue, observed: Observed
) -> Iterable[Finding]:
    file = applied.source_path.rpartition("/")[2]
    if facts.model is Presence.MISSING:
        path = applied.model_path or applied.model
        mount = "/".join(path.split("/")[:2])
        yield _refuse(f"model file missing: {path} (is {mount} mounted?)")
    if facts.engine is Presence.MISSING:
        yield _refuse(f"engine not found: {applied.binary}: install it or correct {file}")
    if facts.port_user is not None and not _freed(applied, goal, catalogue, observed):
        yield _refuse(
            f"port {applied.endpoint.port} is in use by a process of user {facts.port_user}:"
            f" stop it, or give {applied.name} another port in {file}"
        )
    if facts.edited:
        yield Finding(
            level=Level.WARN, text=f"{file} has changed since it was applied: sudo appliance apply"
        )


def _freed(applied: Applied, goal: Goal, catalogue: Catalogue, observed: Observed) -> bool:
    """Whether the listener on the port is this profile itself or one that will be stopped."""
    if not observed.unit(applied.name).idle:
        return True
    return any(
        n in catalogue and catalogue[n].endpoint.port == applied.endpoint.port for n in goal.stop
    )


def _gpu_findings(applied: Applied, box: BoxFacts) -> Iterable[Finding]:
    gpus = applied.claim.gpus
    if not gpus:
        return
    if box.gpu_error is not None:
        yield _refuse(f"{applied.name} needs a GPU, and none can be read: {box.gpu_error}")
        return
    present = box.gpu_total_bytes
    wanted = set(present) if ALL_GPUS in gpus else {int(g.removeprefix("gpu-")) for g in gpus}
    if missing := sorted(wanted - set(present)):
        yield _refuse(f"{applied.name} claims GPU {missing[0]}, the box has {len(present)}")
        return
    yield from _foreign_findings(applied, wanted, box)
    total = sum(present[i] for i in wanted)
    need = applied.need.vram_bytes
    if need is not None and need > total:
        yield _refuse(f"needs ≈{need / GIB:.1f} GiB of VRAM, the GPUs have {total / GIB:.1f}")
    elif need is not None:
        yield Finding(
            level=Level.OK, text=f"needs ≈{need / GIB:.1f} GiB of VRAM, {total / GIB:.1f} total"
        )


def _foreign_findings(applied: Applied, wanted: set[int], box: BoxFacts) -> Iterable[Finding]:
    """Memory held by processes that no switch will end."""
    foreign = [
        holder
        for index in sorted(wanted)
        for holder in box.gpu_holders.get(index, ())
        if profile_of(holder.unit) is None
    ]
    held = sum(holder.held_bytes or 0 for holder in foreign)
    total = sum(box.gpu_total_bytes[i] for i in wanted)
    need = applied.need.vram_bytes
    level = Level.REFUSE if need is not None and need > total - held else Level.WARN
    for holder in foreign:
        amount = "memory" if holder.held_bytes is None else f"{holder.held_bytes / GIB:.1f} GiB"
        yield Finding(
            level=level,
            text=f"{amount} held by {holder.comm} (pid {holder.pid}, user {holder.user}):"
            " stop it or wait",
        )


def _ram_findings(
    goal: Goal, catalogue: Catalogue, observed: Observed, box: BoxFacts
) -> Iterable[Finding]:
    beside = tuple(
        n for n in observed.busy() if n in catalogue and n not in {*goal.stop, *goal.start}
    )
    together = (*goal.start, *beside)
    if not goal.start:
        return
    need = sum(catalogue[n].need.ram_bytes or 0 for n in together)
    if need > box.ram_total_bytes:
        who = f"{joined(together)} {'need' if together[1:] else 'needs'}"
        yield _refuse(
            f"{who} ≈{need / GIB:.1f} GiB of RAM{' together' if together[1:] else ''},"
            f" the box has {box.ram_total_bytes / GIB:.1f}"
        )
    elif need:
        yield Finding(
            level=Level.OK,
            text=f"needs ≈{need / GIB:.1f} GiB of RAM, {box.ram_total_bytes / GIB:.1f} total",
        )
