"""The memory requirement on the gate's command line."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.launch.program import Options
from appliance.model.profile import Applied, Estimate, Need
from appliance.switch.memory.requirement import (
    GATE_FLAGS,
    GATE_SWITCHES,
    MARGIN_BYTES,
    MemoryRequirement,
    arguments_of,
    requirement_in,
)
from appliance.switch.need import requirement_of
from tests.fakes.profiles import applied

GIB = 1 << 30
ESTIMATE = Estimate(vram_bytes=20 * GIB, least_vram_bytes=18 * GIB, ram_bytes=GIB)
ALL = replace(
    applied("a", "gpu-all", need=Need(vram_bytes=24 * GIB, ram_bytes=4 * GIB)),
    vram_fraction=0.5,
    estimate=ESTIMATE,
    gpu_split=(3.0, 1.5),
    assume_free=True,
)


def read(words: tuple[str, ...]) -> MemoryRequirement:
    return requirement_in(Options(words, GATE_FLAGS, GATE_SWITCHES))


def fields(requirement: MemoryRequirement) -> dict[str, object]:
    """Return every value that the command line states."""
    left_out = {"own", "rivals", "peak", "strangers"}
    return {n: getattr(requirement, n) for n in requirement.__slots__ if n not in left_out}


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        (
            ALL,
            f"--gpus all --vram-split 3,1.5 --vram-bytes {24 * GIB} --assume-free --ram-bytes {4 * GIB}",
        ),
        (
            replace(ALL, need=Need(), gpu_split=(), assume_free=False),
            "--gpus all --vram-fraction 0.5",
        ),
        (
            replace(ALL, need=Need(), gpu_split=(), vram_fraction=None, gpus=(1, 0)),
            f"--gpus 1,0 --vram-estimate {20 * GIB} --vram-least {18 * GIB} --assume-free",
        ),
        (replace(ALL, gpus=()), f"--ram-bytes {4 * GIB}"),
        (applied("mini", "cpu"), ""),
    ],
)
def test_only_the_best_source_is_stated(profile: Applied, words: str) -> None:
    """Declared, else the share, else the estimate; nothing of GPUs for a profile without."""
    assert " ".join(arguments_of(requirement_of(profile))) == words


sizes = st.none() | st.integers(0, 1 << 50)


@given(
    st.builds(
        MemoryRequirement,
        ram_bytes=sizes,
        vram_bytes=sizes,
        fraction=st.none() | st.floats(0.0, 1.0, exclude_min=True),
        estimate_bytes=sizes,
        least_bytes=sizes,
        gpus=st.none() | st.lists(st.integers(0, 15), min_size=1, unique=True).map(tuple),
        split=st.lists(st.floats(0.0, 1e6), max_size=4).map(tuple),
        assume_free=st.booleans(),
    )
)
def test_what_is_written_is_read(requirement: MemoryRequirement) -> None:
    """To the last digit of a share."""
    assert fields(read(arguments_of(requirement))) == fields(requirement)


def test_the_box_has_a_margin() -> None:
    """Of its settings, or the rule's own."""
    assert read(()).margin_bytes == MARGIN_BYTES
    assert read(("--margin-bytes", "7")).margin_bytes == 7


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--vram-fraction", "0"), "--vram-fraction is no share of a GPU: 0"),
        (("--vram-fraction", "1.1"), "--vram-fraction is no share of a GPU: 1.1"),
        (("--vram-fraction", "nan"), "--vram-fraction is no share of a GPU: nan"),
        (("--vram-split", "1,x"), "--vram-split is no list of weights: 1,x"),
        (("--vram-split", "1,-1"), "--vram-split is no list of weights: 1,-1"),
        (("--vram-split", "inf"), "--vram-split is no list of weights: inf"),
        (("--gpus", "0,x"), "--gpus is neither all nor a list of indexes: 0,x"),
        (("--gpus", "٣"), "--gpus is neither all nor a list of indexes: ٣"),
    ],
)
def test_what_means_nothing_is_refused(words: tuple[str, ...], sentence: str) -> None:
    """With the flag and its value."""
    with pytest.raises(ValueError, match=r"^--") as error:
        read(words)
    assert str(error.value) == sentence


def test_a_gpu_is_named_once() -> None:
    """A second time it would have a second part of the need."""
    assert read(("--gpus", "1,0,1")).gpus == (1, 0)
    assert read(("--gpus", "")).gpus == ()
