"""Judgement of a profile's memory by the estimate and the gate's rule, on the box without our models."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from appliance.engines.shared.invocation import InvocationContext
from appliance.model.memory import DeviceMemory, GpuState, Holder, Quality
from appliance.model.model_headers import Model, ModelFileFault, Unread
from appliance.model.names import unit_of
from appliance.profiles.proposing.fit_judge import (
    FitJudge,
    Judged,
    ProposalBox,
    ProposalRefusedError,
    place_lines,
    proposal_box,
    shortfall_text,
)
from appliance.switch.memory_findings import Leaving
from appliance.switch.preflight_facts import BoxFacts
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.profiles import applied
from tests.fakes.proposals import GIB, LLAMA, MIB, box, gguf, gpu, judge_of, weights

HEAD = 'engine = "llama-server"\nbinary = "/b"\nmodel = "/m.gguf"\nport = 9000\n'
VLLM = 'engine = "vllm"\nbinary = "/b"\nmodel = "/m"\nport = 9000\nctx = 8192\nparallel = 1\n'
MODEL = gguf({**LLAMA, "llama.block_count": 20}, layers=20, layer_bytes=512 * MIB)


def judged(text: str, here: ProposalBox, model: Model = MODEL) -> Judged:
    return judge_of(here, model).judged(parse_profile("p", text.encode()))


def test_an_estimate_counts_as_if_it_were_declared() -> None:
    """The need with the margin has to be free, although the gate would wait for less."""
    text = f"{HEAD}gpus = [0]\nctx = 8192\n"
    assert judged(text, box(16)).fits
    found = judged(text, box(10))
    assert not found.fits
    assert shortfall_text(found) == "≈11.3 GiB on GPU 0, and 10.0 GiB are there in all"
    busy = replace(box(16).devices[0], free_bytes=10 * GIB)
    found = judged(text, replace(box(16), devices=(busy,)))
    assert shortfall_text(found) == "≈11.3 GiB on GPU 0, and 10.0 GiB can be had"
    assert not found.lacks_only_ram


def test_main_memory_that_is_missing() -> None:
    """On the CPU the weights have to fit into what can be had of RAM."""
    found = judged(f"{HEAD}gpus = []\nctx = 8192\n", box(ram_gib=8))
    assert found.lacks_only_ram
    assert shortfall_text(found) == "≈11.5 GiB of RAM, and 8.0 GiB are there in all"
    assert found.total_bytes > 11 * GIB


def test_memory_that_gpu_and_host_share() -> None:
    """One pool has to hold both needs."""
    here = box(16, ram_gib=24)
    shared = replace(here.devices[0], quality=Quality.UNIFIED, free_bytes=6 * GIB)
    found = judged(f"{HEAD}gpus = [0]\nctx = 8192\n", replace(here, devices=(shared,)))
    assert "of the memory that GPU 0 shares with the host, and 6.0 GiB can be had" in (
        shortfall_text(found)
    )


def test_gpus_that_are_not_there() -> None:
    """A profile for GPUs that the box lacks names the first, or says that there is none."""
    assert shortfall_text(judged(f"{HEAD}gpus = [0, 3]\n", box(16))) == "GPU 3 is not there"
    found = judged(f'{HEAD}gpus = "all"\n', box())
    assert shortfall_text(found) == "there is no GPU"
    assert next(iter(place_lines(found, box()))).endswith("this box has none")


def test_a_share_has_to_be_free_and_to_hold_the_estimate() -> None:
    """An engine that takes a share of each GPU asks for all of it, and its cache has to fit into it."""
    text = f"{VLLM}gpus = [0]\n[vllm]\ngpu_memory_utilization = 0.5\n"
    assert judged(text, box(24), weights(6)).fits
    assert shortfall_text(judged(text, box(24), weights(11))) == (
        "≈13.1 GiB on GPU 0, and 12.0 GiB can be had"
    )
    here = box(24)
    busy = replace(here, devices=(replace(here.devices[0], free_bytes=11 * GIB),))
    assert not judged(text, busy, weights(1)).fits


def test_a_profile_without_an_estimate_lacks_nothing_and_does_not_fit() -> None:
    """Where there is no estimate nothing is said about the fit."""
    found = judged(HEAD, box(16), gguf({}))
    assert (found.row, found.fits, found.lacking, found.total_bytes) == (None, False, (), 0)
    assert list(place_lines(found, box(16))) == []


def test_the_parts_in_each_place() -> None:
    """Each GPU and RAM have a line with their parts and what can be had there."""
    found = judged(f"{HEAD}gpus = [0, 1]\nctx = 8192\n", box(16, 16))
    lines = list(place_lines(found, box(16, 16)))
    assert [line.partition(" ≈")[0] for line in lines] == ["GPU 0", "GPU 1", "RAM"]
    assert lines[0].startswith("GPU 0 ≈5.8 GiB: weights 5.2 GiB, cache ")
    assert lines[0].endswith("; free 15.7 GiB")
    alone = judged(f"{HEAD}gpus = []\nctx = 8192\n", box())
    assert len(list(place_lines(alone, box()))) == 1


def test_a_file_that_is_missing_is_named() -> None:
    """Where a projector is missing, the reason names it: nothing has been applied yet."""
    missing = Unread(fault=ModelFileFault.MISSING, problem="mmproj.gguf is missing")
    judge = FitJudge(box(16), InvocationContext(), lambda _: missing)
    found = judge.judged(parse_profile("p", HEAD.encode()))
    assert found.applied.estimate_problem == "mmproj.gguf is missing"


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
