"""Memory of the box for a proposal."""

from collections.abc import Mapping, Sequence

import pytest

from appliance.model.memory import DeviceMemory, GpuState, Holder, Quality
from appliance.model.names import unit_of
from appliance.profiles.proposing.proposal_box import ProposalRefusedError, proposal_box
from appliance.switch.admission.findings import BoxFacts
from appliance.switch.admission.prediction import Leaving
from tests.fakes.profiles import applied
from tests.fakes.proposals import GIB, gpu

NOBODY = Leaving()


def facts(devices: Sequence[DeviceMemory] = (), **more: object) -> BoxFacts:
    values: Mapping[str, object] = {
        "ram_total_bytes": 64 * GIB,
        "ram_available_bytes": 40 * GIB,
        "devices": {device.index: device for device in devices},
    }
    return BoxFacts(**{**values, **more})  # type: ignore[arg-type]


def test_gpus_with_the_most_free_memory_come_first() -> None:
    """The fewest GPUs that hold a model are those with the most room."""
    here = proposal_box(facts([gpu(0, 16), gpu(1, 24), gpu(2, 24)]), NOBODY)
    assert here.indexes == (1, 2, 0)
    assert here.host.available_bytes == 40 * GIB


def test_memory_of_our_models_counts_as_free() -> None:
    """The model that serves now leaves before another starts, with its main memory."""
    old = applied("old", "gpu-all")
    holder = Holder(pid=1, held_bytes=20 * GIB, comm="x", user="x", unit=unit_of("old"))
    busy = gpu(0, 24, free_bytes=3 * GIB, used_bytes=20 * GIB, holders=(holder,))
    here = proposal_box(facts([busy]), Leaving(names={"old"}, running=(old,)))
    assert here.devices[0].free_bytes == 23 * GIB
    assert here.host.available_bytes == 60 * GIB


def test_some_main_memory_is_left_to_the_box() -> None:
    """A sixteenth of RAM, at least 1 GiB, is never proposed."""
    for total, room in ((64, 60), (8, 7), (1, 0)):
        read = facts(ram_total_bytes=total * GIB, ram_available_bytes=None)
        assert proposal_box(read, NOBODY).host.available_bytes == room * GIB


@pytest.mark.parametrize("state", [GpuState.NO_LIBRARY, GpuState.NO_DRIVER, GpuState.OK])
def test_a_box_without_gpus(state: GpuState) -> None:
    """Without a driver the box has the CPU alone."""
    assert proposal_box(facts(gpu_state=state), NOBODY).devices == ()


def test_gpus_that_cannot_be_read() -> None:
    """Where no GPU can be read nothing is proposed; where some can, the others are named."""
    with pytest.raises(ProposalRefusedError, match="cannot be read: it hangs: appliance status"):
        proposal_box(facts(gpu_state=GpuState.HUNG, gpu_error="it hangs"), NOBODY)
    with pytest.raises(ProposalRefusedError, match="cannot be read: hung"):
        proposal_box(facts(gpu_state=GpuState.HUNG), NOBODY)
    opaque = gpu(0, 24, quality=Quality.OPAQUE)
    with pytest.raises(ProposalRefusedError, match="memory of the GPUs cannot be read"):
        proposal_box(facts([opaque]), NOBODY)
    lost = gpu(2, 0, state=GpuState.LOST, problem="it fell off the bus")
    here = proposal_box(facts([opaque, gpu(1, 24), lost], gpu_state=GpuState.LOST), NOBODY)
    assert here.indexes == (1,)
    assert here.notes == (
        "GPU 0 is left out: its memory cannot be read",
        "GPU 2 is left out: it fell off the bus",
    )
