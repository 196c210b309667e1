"""Need of a profile on a box: the best known source, and its spread over GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.memory import DeviceMemory, Quality
from appliance.model.memory_parts import Alternative, MemoryParts, SettingChange
from appliance.model.profile import Applied, Estimate, Need
from appliance.status.memory_rows import need_row
from appliance.switch.memory.peak import ObservedPeak, with_allowance
from appliance.switch.memory.requirement import MemoryRequirement, parts_of
from appliance.switch.need import Source, estimate_row, resolve
from tests.fakes.gpu_readings import card
from tests.fakes.profiles import applied

GIB = 1 << 30
CARDS = (card(0, uuid="GPU-a"), card(1, uuid="GPU-b"))
BASE = applied("genesis", "gpu-all")
ESTIMATE = Estimate(
    vram_bytes=20 * GIB,
    least_vram_bytes=18 * GIB,
    ram_bytes=2 * GIB,
    notes=("sliding window, upper bound", "compute buffers guessed"),
)


def observed(
    *,
    fingerprint: str = BASE.fingerprint,
    gpus: Mapping[str, int] = {"GPU-a": 10 * GIB, "GPU-b": GIB},
    ram_bytes: int | None = 3 * GIB,
) -> ObservedPeak:
    return ObservedPeak(fingerprint=fingerprint, gpus=gpus, ram_bytes=ram_bytes)


PEAK = observed()


def with_all(**changes: object) -> Applied:
    """Declared, utilisation and estimate at once."""
    known = replace(
        BASE,
        need=Need(vram_bytes=24 * GIB, ram_bytes=4 * GIB),
        vram_fraction=0.5,
        estimate=ESTIMATE,
    )
    return replace(known, **changes)  # type: ignore[arg-type]  # a test names real fields


NOTHING = Need()


@pytest.mark.parametrize(
    ("profile", "peak", "text", "gpus"),
    [
        (
            with_all(),
            PEAK,
            "≈12.0 GiB (observed)",
            {0: with_allowance(10 * GIB), 1: with_allowance(GIB)},
        ),
        (with_all(), None, "≈24.0 GiB (declared)", {0: 12 * GIB, 1: 12 * GIB}),
        (
            with_all(need=NOTHING),
            None,
            "≈16.0 GiB (utilisation: 50 % of each GPU)",
            {0: 8 * GIB, 1: 8 * GIB},
        ),
        (
            with_all(need=NOTHING, vram_fraction=None),
            None,
            "≈20.0 GiB (estimate: sliding window, upper bound; compute buffers guessed)",
            {0: 10 * GIB, 1: 10 * GIB},
        ),
        (
            replace(BASE, estimate_problem="architecture foo is not known"),
            None,
            "unknown (architecture foo is not known)",
            {},
        ),
        (BASE, None, "unknown (not declared)", {}),
        (applied("mini", "cpu"), None, "none", {}),
    ],
)
def test_the_best_source_is_told(
    profile: Applied, peak: ObservedPeak | None, text: str, gpus: Mapping[int, int]
) -> None:
    """Observed before declared, utilisation, estimate and unknown."""
    need = resolve(profile, peak, CARDS)
    assert (need.text, need.gpus) == (text, gpus)


@pytest.mark.parametrize(
    "peak",
    [
        observed(fingerprint="another"),
        observed(gpus={"GPU-a": GIB}),
        observed(gpus={"GPU-a": GIB, "GPU-c": GIB}),
        observed(gpus={}),
    ],
)
def test_a_peak_of_another_configuration_tells_nothing(peak: ObservedPeak) -> None:
    """The fingerprint and the set of GPUs must be the same."""
    assert resolve(with_all(), peak, CARDS).source is Source.DECLARED


def test_a_peak_without_a_fingerprint_tells_nothing() -> None:
    """A profile of an older release has none to compare."""
    old = with_all(fingerprint="")
    assert resolve(old, observed(fingerprint=""), CARDS).source is Source.DECLARED


@pytest.mark.parametrize(
    ("profile", "peak", "text", "total"),
    [
        (with_all(), PEAK, "≈12.0 GiB (observed)", with_allowance(10 * GIB) + with_allowance(GIB)),
        (with_all(), None, "≈24.0 GiB (declared)", 24 * GIB),
        (with_all(need=NOTHING), None, "50 % of each GPU (utilisation)", None),
    ],
)
def test_without_gpus_to_look_at_the_sum_is_told(
    profile: Applied, peak: ObservedPeak | None, text: str, total: int | None
) -> None:
    """`show` works with the driver gone; what follows from its GPUs is left out."""
    need = resolve(profile, peak, ())
    assert (need.text, need.vram_bytes, need.gpus) == (text, total, {})


@pytest.mark.parametrize(
    ("profile", "peak", "text"),
    [
        (with_all(), PEAK, f"≈{with_allowance(3 * GIB) / GIB:.1f} GiB (observed)"),
        (with_all(), None, "≈4.0 GiB (declared)"),
        (with_all(need=NOTHING), None, "≈2.0 GiB (estimate)"),
        (BASE, None, "unknown"),
        (
            replace(applied("mini", "cpu"), estimate_problem="it is cut"),
            None,
            "unknown (it is cut)",
        ),
        (
            applied("mini", "cpu"),
            ObservedPeak(fingerprint="fingerprint of mini", ram_bytes=GIB),
            "≈1.5 GiB (observed)",
        ),
    ],
)
def test_main_memory_has_its_own_source(
    profile: Applied, peak: ObservedPeak | None, text: str
) -> None:
    """Observed before declared before estimated."""
    assert resolve(profile, peak, CARDS).ram_text == text


def test_a_peak_of_vram_alone_leaves_the_ram_to_others() -> None:
    """RAM that was not observed is as declared."""
    need = resolve(with_all(), observed(ram_bytes=None), CARDS)
    assert (need.source, need.ram_source) == (Source.OBSERVED, Source.DECLARED)


@pytest.mark.parametrize(
    ("gpus", "split", "totals", "expected"),
    [
        ("all", (), {0: 24, 1: 8}, {0: 24, 1: 8}),
        ("all", (3.0, 1.0), {0: 16, 1: 16}, {0: 24, 1: 8}),
        ("all", (1.0,), {0: 16, 1: 16}, {0: 32, 1: 0}),
        ((1, 0), (3.0, 1.0), {0: 16, 1: 16}, {1: 24, 0: 8}),
        ((1,), (), {0: 16, 1: 16}, {1: 32}),
        ("all", (0.0, 1.0), {0: 16}, {0: 32}),
        ("all", (), {0: 0, 1: 0}, {0: 16, 1: 16}),
        ("all", (), {0: 24, 1: 0}, {0: 16, 1: 16}),
        ((2,), (), {0: 16}, {}),
    ],
)
def test_a_need_is_spread_as_the_engine_spreads_it(
    gpus: object, split: tuple[float, ...], totals: dict[int, int], expected: dict[int, int]
) -> None:
    """By the split in the order of the GPUs; without one by their size."""
    profile = with_all(gpus=gpus, gpu_split=split, need=Need(vram_bytes=32))
    assert (
        resolve(profile, None, [card(i, total_bytes=b) for i, b in totals.items()]).gpus == expected
    )


@given(
    st.integers(0, 1 << 50),
    st.lists(st.floats(0, 1e6), max_size=4).map(tuple),
    st.lists(st.integers(0, 1 << 40), max_size=4),
)
def test_no_part_is_lost(need: int, split: tuple[float, ...], totals: Sequence[int]) -> None:
    """Together the parts are at least the need, wherever there are GPUs."""
    cards = [card(i, total_bytes=total) for i, total in enumerate(totals)]
    parts = parts_of(MemoryRequirement(gpus=None, split=split), need, cards)
    assert not cards or sum(parts) >= need * (1 - 1e-9)
    assert all(part >= 0 for part in parts)


def test_a_need_as_json() -> None:
    """Source, bytes and notes, GPU by GPU."""
    row = need_row(resolve(with_all(need=NOTHING, vram_fraction=None), None, CARDS))
    assert msgspec.to_builtins(row) == {
        "vram": {
            "source": "estimate",
            "bytes": 20 * GIB,
            "gpus": {"0": 10 * GIB, "1": 10 * GIB},
            "fraction": None,
            "notes": list(ESTIMATE.notes),
            "problem": "",
        },
        "ram": {"source": "estimate", "bytes": 2 * GIB},
    }
    assert msgspec.to_builtins(need_row(resolve(applied("mini", "cpu"), None, ())).vram) == {
        "source": None,
        "bytes": None,
        "gpus": {},
        "fraction": None,
        "notes": [],
        "problem": "",
    }
    unknown = need_row(resolve(replace(BASE, estimate_problem="why"), None, ())).vram
    assert unknown.problem == "why"


@pytest.mark.parametrize(
    ("changes", "peak", "total_gib", "text"),
    [
        ({}, None, 32, "≈16.0 GiB (utilisation)"),
        ({}, None, 0, "≈2.0 GiB (estimate)"),
        ({"need": Need(ram_bytes=8 * GIB)}, None, 32, "≈8.0 GiB (declared)"),
        ({}, ObservedPeak(fingerprint="f", ram_bytes=GIB), 32, "≈1.5 GiB (observed)"),
    ],
)
def test_share_of_main_memory(
    changes: dict[str, object], peak: ObservedPeak | None, total_gib: int, text: str
) -> None:
    """An engine on the CPU may take a share of RAM; it goes by the same order as one of a GPU."""
    of_two = Estimate(vram_bytes=0, least_vram_bytes=0, ram_bytes=2 * GIB)
    base = replace(applied("mini", "cpu"), fingerprint="f", ram_fraction=0.5, estimate=of_two)
    found = resolve(replace(base, **changes), peak, (), total_gib * GIB)  # type: ignore[arg-type]  # real fields
    assert found.ram_text == text


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
    assert list(row.gpus) == ["0", "1"]
    assert row.gpus["0"].weights_bytes == 6 * GIB
    assert row.gpus["1"].cache_bytes == GIB
    assert row.vram.weights_bytes == 8 * GIB
    assert row.ram.checkpoints_bytes == 2 * GIB
    assert row.least_vram_bytes == 8 * GIB
    assert row.notes == ("compute buffers guessed",)
    (half,) = row.alternatives
    assert (half.change, half.setting) == ("half-context", "ctx = 8192")
    assert half.gpus["0"].cache_bytes == 3 * GIB // 2


def test_gpus_that_are_not_known_are_left_out() -> None:
    """GPUs that are not known, and those of a model in main memory alone, have no row."""
    unknown = estimate_row(with_estimate(), ())
    assert unknown is not None
    assert unknown.gpus == {}
    in_ram = estimate_row(with_estimate(vram=MemoryParts()), (device(0), device(1)))
    assert in_ram is not None
    assert in_ram.gpus == {}


def test_estimate_without_parts_has_no_row() -> None:
    """No row is made without an estimate, nor for one that an older release made."""
    assert estimate_row(applied("a"), ()) is None
    assert estimate_row(with_estimate(MemoryParts(), MemoryParts()), ()) is None
