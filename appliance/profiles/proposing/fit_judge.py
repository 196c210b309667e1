"""Judgement of a profile's memory: by the estimate of its model's headers and the gate's rule alone.

The gate asks less of an estimate than of a declared need, because a wait for what an estimate got wrong
could have no end. A proposal has to fit: here the estimate counts as if it were declared. An engine that takes
a share of each GPU has to find all of that share free, and the estimate has to fit into it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import InvocationContext
from appliance.model.amounts import parts_text, size
from appliance.model.memory import DeviceMemory
from appliance.model.model_headers import (
    LookAtModel,
    Model,
    ModelFileFault,
    ModelReference,
    Unread,
)
from appliance.model.profile import Applied, Need
from appliance.model.spec import Profile
from appliance.profiles.compilation import ProfileSource, compile_applied
from appliance.profiles.proposing.proposal_box import ProposalBox
from appliance.switch.memory import fit
from appliance.switch.memory.fit import Shortfall
from appliance.switch.memory.requirement import MemoryRequirement
from appliance.switch.need import requirement_of
from appliance.switch.need_parts import EstimateRow, PartsRow, estimate_row

_OF_RAM: Final = frozenset({fit.RAM, fit.POOL})
_NOWHERE: Final = ProfileSource(path="", sha256="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Profile, and what it would need on the box."""

    profile: Profile
    applied: Applied
    row: EstimateRow | None
    """Parts of the estimate by place; None: there is no estimate, see `Applied.estimate_problem`."""
    lacking: tuple[Shortfall, ...]
    """Memory that is missing; empty: it fits, as far as an estimate tells."""

    @property
    def fits(self) -> bool:
        """Tell whether there is an estimate, and all of it fits."""
        return self.row is not None and not self.lacking

    @property
    def lacks_only_ram(self) -> bool:
        """Tell whether main memory alone is missing."""
        return bool(self.lacking) and all(short.kind in _OF_RAM for short in self.lacking)

    @property
    def total_bytes(self) -> int:
        """Return the bytes of the estimate in all memories together; 0: there is none."""
        estimate = self.applied.estimate
        return 0 if estimate is None else estimate.vram_bytes + estimate.ram_bytes


class FitJudge:
    """Judge of profiles for one model on one box.

    Args:
        box: Memory that can be had.
        context: Facts of the box on which invocations of engines depend.
        look: Reads the headers of the model.
    """

    def __init__(self, box: ProposalBox, context: InvocationContext, look: LookAtModel) -> None:
        self.box = box
        self._context = context
        self._look = look

    def judged(self, profile: Profile) -> Judged:
        """Return what `profile`, a valid one, needs on the box and lacks there."""
        invocation = ENGINES[profile.engine].invocation(profile, self._context)
        hf_home = self._context.hf_home
        applied = compile_applied(profile, _NOWHERE, invocation, hf_home, self._seen)
        return Judged(
            profile=profile,
            applied=applied,
            row=estimate_row(applied, self.box.devices),
            lacking=tuple(self._lacking(applied)),
        )

    def _seen(self, reference: ModelReference) -> Model | Unread:
        """Look at a model now: a file that is missing is named, as one that cannot be read is."""
        found = self._look(reference)
        if isinstance(found, Unread):
            return Unread(fault=ModelFileFault.UNREADABLE, problem=found.problem)
        return found

    def _lacking(self, applied: Applied) -> Iterator[Shortfall]:
        estimate = applied.estimate
        if estimate is None:
            return
        need = Need(vram_bytes=estimate.vram_bytes, ram_bytes=estimate.ram_bytes)
        devices: Sequence[DeviceMemory] = self.box.devices
        margin_bytes = self.box.margin_bytes
        if applied.vram_fraction is not None:
            taken = _requirement(applied, Need(), margin_bytes)
            yield from fit.shortfalls(taken, devices, self.box.host)
            devices = [_share(device, applied.vram_fraction) for device in devices]
            margin_bytes = 0  # the share is taken whole, with what the driver needs
        declared = _requirement(applied, need, margin_bytes)
        yield from fit.shortfalls(declared, devices, self.box.host)


def _requirement(applied: Applied, need: Need, margin_bytes: int) -> MemoryRequirement:
    return requirement_of(replace(applied, need=need), margin_bytes=margin_bytes, rivals=())


def _share(device: DeviceMemory, fraction: float) -> DeviceMemory:
    """Return a GPU of which an engine has a share and no more."""
    share = int(fraction * device.total_bytes)
    return replace(device, free_bytes=min(share, device.free_bytes))


def place_lines(judged: Judged, box: ProposalBox) -> Iterator[str]:
    """Yield a line for each GPU and for RAM: its parts, and what can be had there."""
    if judged.row is None:
        return
    free = {str(device.index): device.free_bytes for device in box.devices}
    for index, row in judged.row["gpus"].items():
        yield f"GPU {index} {parts_text(_parts(row))}; free {size(free.get(index, 0))}"
    if not judged.row["gpus"]:
        yield from _together(judged.row["vram"])
    yield f"RAM {parts_text(_parts(judged.row['ram']))}; free {size(box.host.available_bytes)}"


def _together(vram: PartsRow) -> Iterator[str]:
    parts = _parts(vram)
    if any(parts.values()):
        yield f"GPUs {parts_text(parts)}; this box has none"


def _parts(row: PartsRow) -> Mapping[str, int]:
    return {
        "weights": row["weights_bytes"],
        "cache": row["cache_bytes"],
        "state": row["state_bytes"],
        "compute": row["compute_bytes"],
        "checkpoints": row["checkpoints_bytes"],
    }


def shortfall_text(judged: Judged) -> str:
    """Return what is missing, as phrases joined with semicolons; empty: nothing is."""
    return "; ".join(dict.fromkeys(map(_phrase, judged.lacking)))


def _phrase(short: Shortfall) -> str:
    if short.kind == fit.MISSING:
        return f"GPU {short.index} is not there" if short.index >= 0 else "there is no GPU"
    places = {
        fit.RAM: "of RAM",
        fit.POOL: f"of the memory that GPU {short.index} shares with the host",
    }
    where = places.get(short.kind, f"on GPU {short.index}")
    room = "are there in all" if short.final else "can be had"
    return f"≈{size(short.wanted_bytes)} {where}, and {size(short.present_bytes)} {room}"
