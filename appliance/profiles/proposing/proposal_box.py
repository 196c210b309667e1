"""Memory of the box for a proposal: what can be had once every model of ours has stopped."""

from dataclasses import dataclass, replace
from typing import Final

from appliance.model.errors import ApplianceError
from appliance.model.memory import DeviceMemory, GpuState, HostMemory
from appliance.switch.admission.findings import BoxFacts
from appliance.switch.admission.gpu_readiness import NOWHERE
from appliance.switch.admission.prediction import Leaving, prediction_of
from appliance.switch.memory.requirement import has_sizes

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
