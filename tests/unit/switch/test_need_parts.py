"""Parts of an estimate by GPU, as JSON values."""

from dataclasses import replace

from appliance.model.memory import DeviceMemory, Quality
from appliance.model.memory_parts import Alternative, MemoryParts, SettingChange
from appliance.model.profile import Applied, Estimate
from appliance.switch.need_parts import estimate_row
from tests.fakes.profiles import applied

GIB = 1 << 30


def device(index: int) -> DeviceMemory:
    """A GPU of 24 GiB."""
    return DeviceMemory(
        index=index,
        uuid=f"GPU-{index}",
        name="",
        total_bytes=24 * GIB,
        free_bytes=24 * GIB,
        used_bytes=0,
        quality=Quality.EXACT,
    )


VRAM = MemoryParts(weights_bytes=8 * GIB, cache_bytes=4 * GIB, compute_bytes=GIB)
RAM = MemoryParts(weights_bytes=GIB, checkpoints_bytes=2 * GIB)
HALF = Alternative(
    change=SettingChange.HALF_CONTEXT,
    setting="ctx = 8192",
    vram=replace(VRAM, cache_bytes=2 * GIB),
    ram=RAM,
)


def with_estimate(vram: MemoryParts = VRAM, ram: MemoryParts = RAM) -> Applied:
    """A profile on two GPUs, three quarters on the first."""
    estimate = Estimate(
        vram_bytes=vram.total_bytes,
        least_vram_bytes=8 * GIB,
        ram_bytes=ram.total_bytes,
        notes=("compute buffers guessed",),
        vram=vram,
        ram=ram,
        alternatives=(HALF,),
    )
    return replace(applied("a"), gpus=(0, 1), gpu_split=(3.0, 1.0), estimate=estimate)


def test_parts_are_spread_like_the_whole() -> None:
    """Each part by the split of the profile, in the alternative too."""
    row = estimate_row(with_estimate(), (device(0), device(1), device(2)))
    assert row is not None
    assert list(row["gpus"]) == ["0", "1"]
    assert row["gpus"]["0"]["weights_bytes"] == 6 * GIB
    assert row["gpus"]["1"]["cache_bytes"] == GIB
    assert row["vram"]["weights_bytes"] == 8 * GIB
    assert row["ram"]["checkpoints_bytes"] == 2 * GIB
    assert row["least_vram_bytes"] == 8 * GIB
    assert row["notes"] == ["compute buffers guessed"]
    (half,) = row["alternatives"]
    assert (half["change"], half["setting"]) == ("half-context", "ctx = 8192")
    assert half["gpus"]["0"]["cache_bytes"] == 3 * GIB // 2


def test_gpus_that_are_not_known_are_left_out() -> None:
    """GPUs that are not known, and those of a model in main memory alone, have no row."""
    unknown = estimate_row(with_estimate(), ())
    assert unknown is not None
    assert unknown["gpus"] == {}
    in_ram = estimate_row(with_estimate(vram=MemoryParts()), (device(0), device(1)))
    assert in_ram is not None
    assert in_ram["gpus"] == {}


def test_estimate_without_parts_has_no_row() -> None:
    """No row is made without an estimate, nor for one that an older release made."""
    assert estimate_row(applied("a"), ()) is None
    assert estimate_row(with_estimate(MemoryParts(), MemoryParts()), ()) is None
