"""Judgement of a profile's memory on the box: by the estimate of its model's headers and the gate's rule alone.

The memory of the box is what can be had once every model of ours has stopped. The gate asks less of an estimate
than of a declared need, because a wait for what an estimate got wrong could have no end. A proposal has to fit: here
the estimate counts as if it were declared. An engine that takes a share of each GPU has to find all of that share
free, and the estimate has to fit into it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.engines.shared.invocation import InvocationContext
from appliance.model.amounts import parts_text, size
from appliance.model.errors import ApplianceError
from appliance.model.memory import DeviceMemory, GpuState, HostMemory
from appliance.model.model_headers import LookAtModel, Model, ModelFileFault, ModelReference, Unread
from appliance.model.profile import Applied, Need
from appliance.model.spec import Profile
from appliance.profiles.compilation import ProfileSource, spec_of
from appliance.switch.memory import fit
from appliance.switch.memory.fit import Shortfall
from appliance.switch.memory.requirement import MemoryRequirement, has_sizes
from appliance.switch.memory_findings import NOWHERE, Leaving, prediction_of
from appliance.switch.need import EstimateRow, estimate_row, requirement_of
from appliance.switch.preflight_facts import BoxFacts

_REST_SHARE: Final = 16
"""Part of RAM that a proposal leaves to the rest of the box: one sixteenth."""
_LEAST_REST_BYTES: Final = 1 << 30


class ProposalRefusedError(ApplianceError):
    """No profile can be proposed; `str()` says why and what to do, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalBox:
    """Memory that a proposed profile may take."""

    devices: tuple[DeviceMemory, ...]
    """GPUs whose memory can be read, those with the most free memory first; empty: the CPU alone."""
    host: HostMemory
    margin_bytes: int
    """Bytes that the gate keeps free beyond a need."""
    notes: tuple[str, ...] = ()
    """Sentences about GPUs that are left out."""

    @property
    def indexes(self) -> tuple[int, ...]:
        """Return the indexes of the GPUs, in the order of `devices`."""
        return tuple(device.index for device in self.devices)


def proposal_box(facts: BoxFacts, leaving: Leaving) -> ProposalBox:
    """Return the memory of the box as a switch would find it.

    Args:
        facts: Readings of GPUs and of main memory.
        leaving: Every profile of the box.

    Raises:
        ProposalRefusedError: there are GPUs, and none of them can be read.
    """
    prediction = prediction_of(facts, leaving)
    usable = [d for d in prediction.devices if d.state is GpuState.OK and has_sizes(d)]
    if not usable and facts.gpu_state not in {GpuState.OK, *NOWHERE}:
        raise ProposalRefusedError(
            f"the GPUs cannot be read: {facts.gpu_error or facts.gpu_state}: appliance status"
        )
    if prediction.devices and not usable:
        raise ProposalRefusedError(
            "the memory of the GPUs cannot be read, so nothing can be proposed: use an example"
            " (appliance profile new --list)"
        )
    lost = [d for d in prediction.devices if d not in usable]
    host = prediction.host
    rest = max(_LEAST_REST_BYTES, host.total_bytes // _REST_SHARE)
    room = min(host.available_bytes, host.total_bytes - rest)
    return ProposalBox(
        devices=tuple(sorted(usable, key=lambda d: (-d.free_bytes, d.index))),
        host=replace(host, available_bytes=max(0, room)),
        margin_bytes=facts.margin_bytes,
        notes=tuple(
            f"GPU {d.index} is left out: {d.problem or 'its memory cannot be read'}" for d in lost
        ),
    )


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
    """Memory that is missing; empty: it fits, by the estimate."""

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
        applied = spec_of(profile, _NOWHERE, self._context, look=self._seen).applied
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
    for index, parts in judged.row.gpus.items():
        yield f"GPU {index} {parts_text(dict(parts.named()))}; free {size(free.get(index, 0))}"
    vram, ram = judged.row.vram, judged.row.ram
    if not judged.row.gpus and vram.total_bytes:
        yield f"GPUs {parts_text(dict(vram.named()))}; this box has none"
    yield f"RAM {parts_text(dict(ram.named()))}; free {size(box.host.available_bytes)}"


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
