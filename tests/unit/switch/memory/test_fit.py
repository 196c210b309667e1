"""The memory rule: what is asked for where, and what readings lack. Pure decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.launch.obstacles import HostFigures
from appliance.launch.shortfall_text import sentence_of
from appliance.switch.memory import fit
from appliance.switch.memory.fit import Shortfall
from appliance.switch.memory.peak import ObservedPeak
from appliance.switch.memory.readings import DeviceReading, HostReading
from appliance.switch.memory.requirement import (
    NEVER_EMPTY_BYTES,
    MemoryRequirement,
    gpu_demands,
    source_of,
    usable_bytes,
    used,
)
from appliance.switch.need import Source
from appliance.system.gpus.sampler_client import Device

GIB = 1 << 30
MARGIN = 256 << 20
RIVAL = "appliance-backend-rival.service"
OWN = "appliance-backend-own.service"
NEIGHBOUR = "appliance-backend-embedder.service"
USERS = "user@1000.service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One pretend device of a reading."""

    free: int = 23 * GIB
    total: int = 24 * GIB
    reserved: int = 0
    quality: str = "exact"
    kind: str = ""
    problem: str = ""
    processes: Sequence[tuple[int, bool]] | None = ()
    """pid and whether it computes; None: no list."""
    sizes_told: bool = True
    """The driver says that each holds 1 GiB."""


def devices(*gpus: Gpu) -> list[Device]:
    """A reading of GPUs; the first has index 0 and UUID ``GPU-0``, and so on."""
    return [
        Device(
            {
                "index": i,
                "uuid": f"GPU-{i}",
                "name": "Pretend",
                "total": g.total,
                "free": g.free,
                "used": g.total - g.reserved - g.free,
                "reserved": g.reserved,
                "quality": g.quality,
                "kind": g.kind,
                "problem": g.problem,
                "processes": None
                if g.processes is None
                else [
                    {"pid": p, "bytes": GIB if g.sizes_told else None, "compute": c}
                    for p, c in g.processes
                ],
            }
        )
        for i, g in enumerate(gpus)
    ]


def host(available: int = 28 * GIB, total: int = 32 * GIB) -> HostFigures:
    return HostFigures(available_bytes=available, total_bytes=total)


def seen(*peaks: int, ram: int | None = None) -> ObservedPeak:
    """An observation on ``GPU-0`` and so on."""
    gpus = {f"GPU-{i}": p for i, p in enumerate(peaks)}
    return ObservedPeak(fingerprint="f", gpus=gpus, ram_bytes=ram)


ANY = (Gpu(), Gpu())
RESERVING = (Gpu(reserved=GIB),)


@pytest.mark.parametrize(
    ("want", "gpus", "asked"),
    [
        # Declared: shares and a margin each.
        (
            MemoryRequirement(vram_bytes=20 * GIB, gpus=None),
            ANY,
            [10 * GIB + MARGIN, 10 * GIB + MARGIN],
        ),
        (MemoryRequirement(vram_bytes=20 * GIB, gpus=(1,)), ANY, [20 * GIB + MARGIN]),
        (
            MemoryRequirement(vram_bytes=20 * GIB, gpus=None, margin_bytes=0),
            ANY,
            [10 * GIB, 10 * GIB],
        ),
        (MemoryRequirement(vram_bytes=3, gpus=None, margin_bytes=0), ANY, [2, 2]),
        # Splits follow the order of the GPUs; what is not named holds nothing but its context.
        (
            MemoryRequirement(vram_bytes=20 * GIB, gpus=(0, 1), split=(3, 1), margin_bytes=0),
            ANY,
            [15 * GIB, 5 * GIB],
        ),
        (
            MemoryRequirement(vram_bytes=20 * GIB, gpus=(1, 0), split=(3, 1), margin_bytes=0),
            ANY,
            [15 * GIB, 5 * GIB],
        ),
        (
            MemoryRequirement(vram_bytes=20 * GIB, gpus=(0, 1), split=(1,)),
            ANY,
            [20 * GIB + MARGIN, MARGIN],
        ),
        (
            MemoryRequirement(vram_bytes=20 * GIB, gpus=None, split=(3, 1, 9), margin_bytes=0),
            ANY,
            [15 * GIB, 5 * GIB],
        ),
        (
            MemoryRequirement(vram_bytes=20 * GIB, gpus=None, split=(0, 0), margin_bytes=0),
            ANY,
            [10 * GIB, 10 * GIB],
        ),
        # A share of each GPU, with no margin on top.
        (MemoryRequirement(fraction=0.5, gpus=None), ANY, [12 * GIB, 12 * GIB]),
        (MemoryRequirement(fraction=0.5, gpus=None, split=(1,)), ANY, [12 * GIB, MARGIN]),
        (MemoryRequirement(fraction=0.97, gpus=(0,)), ANY, [int(0.97 * 24 * GIB)]),
        # An estimate asks for no more than a GPU that is nearly empty has.
        (MemoryRequirement(estimate_bytes=20 * GIB, gpus=(0,)), ANY, [20 * GIB + MARGIN]),
        (MemoryRequirement(estimate_bytes=23 * GIB, gpus=(0,)), ANY, [23 * GIB]),
        (MemoryRequirement(estimate_bytes=99 * GIB, gpus=(0,)), ANY, [23 * GIB]),
        # What was seen comes first, as it stands; an allowance never asks for more than there is.
        (MemoryRequirement(peak=seen(5 * GIB), vram_bytes=9 * GIB, gpus=(0,)), ANY, [5.5 * GIB]),
        (MemoryRequirement(peak=seen(22 * GIB + MARGIN), gpus=(0,)), ANY, [23 * GIB]),
        (
            MemoryRequirement(peak=seen(23 * GIB + MARGIN), gpus=(0,)),
            ANY,
            [23 * GIB + MARGIN],
        ),
        # It holds on the very GPUs where it was seen, and only if it can be true.
        (
            MemoryRequirement(peak=seen(5 * GIB), vram_bytes=9 * GIB, gpus=None, margin_bytes=0),
            ANY,
            [4.5 * GIB, 4.5 * GIB],
        ),
        (
            MemoryRequirement(peak=seen(5 * GIB), vram_bytes=9 * GIB, gpus=(1,), margin_bytes=0),
            ANY,
            [9 * GIB],
        ),
        (
            MemoryRequirement(peak=seen(98 * GIB), vram_bytes=9 * GIB, gpus=(0,), margin_bytes=0),
            ANY,
            [9 * GIB],
        ),
        # An engine that takes a share asks for all of it at once, whatever it was seen to hold.
        (MemoryRequirement(peak=seen(5 * GIB), fraction=0.5, gpus=(0,)), ANY, [12 * GIB]),
        (MemoryRequirement(peak=seen(15 * GIB), fraction=0.5, gpus=(0,)), ANY, [15.75 * GIB]),
        (
            MemoryRequirement(peak=seen(22 * GIB + MARGIN), fraction=0.97, gpus=(0,)),
            ANY,
            [int(0.97 * 24 * GIB)],
        ),
        (MemoryRequirement(gpus=None), ANY, None),
        # What the driver reserves is no part of the whole GPU.
        (MemoryRequirement(estimate_bytes=99 * GIB, gpus=(0,)), RESERVING, [22 * GIB]),
        (MemoryRequirement(fraction=0.5, gpus=(0,)), RESERVING, [12 * GIB]),
        (MemoryRequirement(fraction=0.99, gpus=(0,)), RESERVING, [int(0.99 * 23 * GIB)]),
        (
            MemoryRequirement(peak=seen(23 * GIB + 1), vram_bytes=GIB, gpus=(0,), margin_bytes=0),
            RESERVING,
            [GIB],
        ),
        # Weights that are all beyond the GPUs are as none.
        (
            MemoryRequirement(vram_bytes=20 * GIB, gpus=(0,), split=(0, 1), margin_bytes=0),
            ANY,
            [20 * GIB],
        ),
    ],
)
def test_what_must_be_free(
    want: MemoryRequirement, gpus: Sequence[Gpu], asked: list[float] | None
) -> None:
    """The best source decides, and each GPU is asked for its part of it."""
    ours = used(want, devices(*gpus))
    wanted = gpu_demands(want, devices(*gpus))
    got = None
    if wanted is not None:
        pairs = zip(ours, wanted, strict=True)
        got = [demand.asked_bytes(usable_bytes(device)) for device, demand in pairs]
    assert got == asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A need, a box, and the words of what is missing; none: it is admitted."""

    want: MemoryRequirement
    gpus: Sequence[Gpu] = ()
    host: HostFigures | None = None
    words: str = ""
    final: bool = False
    broken: str = ""


GB10 = Gpu(total=128 * GIB, free=100 * GIB, quality="unified")
ROOMY = host(available=100 * GIB, total=128 * GIB)
CASES = {
    "no need": Case(want=MemoryRequirement()),
    "RAM": Case(want=MemoryRequirement(ram_bytes=20 * GIB)),
    "late RAM": Case(
        want=MemoryRequirement(ram_bytes=20 * GIB),
        host=host(available=10 * GIB),
        words="10.0 of 20.2 GiB of RAM free",
    ),
    "RAM that no machine like this has": Case(
        want=MemoryRequirement(ram_bytes=32 * GIB),
        words="needs 32.2 GiB of RAM with its margin, the machine has 32.0 GiB",
        final=True,
    ),
    "RAM as it was seen": Case(want=MemoryRequirement(ram_bytes=20 * GIB, peak=seen(ram=8 * GIB))),
    "late RAM as it was seen": Case(
        want=MemoryRequirement(ram_bytes=GIB, peak=seen(ram=8 * GIB)),
        host=host(available=8 * GIB),
        words="8.0 of 8.5 GiB of RAM free",
    ),
    "an allowance on RAM never exceeds the machine": Case(
        want=MemoryRequirement(peak=seen(ram=31 * GIB - MARGIN)), host=host(available=31 * GIB)
    ),
    "RAM that cannot have been seen here": Case(
        want=MemoryRequirement(ram_bytes=GIB, peak=seen(ram=98 * GIB))
    ),
    "declared": Case(want=MemoryRequirement(vram_bytes=22 * GIB, gpus=(0,)), gpus=[Gpu()]),
    "late": Case(
        want=MemoryRequirement(vram_bytes=22 * GIB, gpus=None),
        gpus=[Gpu(), Gpu(free=4 * GIB)],
        words="4.0 of 11.2 GiB free on GPU 1",
    ),
    "another GPU's shortage is none of ours": Case(
        want=MemoryRequirement(vram_bytes=22 * GIB, gpus=(0,)), gpus=[Gpu(), Gpu(free=0)]
    ),
    "too large": Case(
        want=MemoryRequirement(vram_bytes=24 * GIB, gpus=(0,)),
        gpus=[Gpu()],
        words="needs 24.2 GiB with its margin on GPU 0, which has 24.0 GiB",
        final=True,
    ),
    "too large for what the driver leaves": Case(
        want=MemoryRequirement(vram_bytes=23 * GIB + GIB // 2, gpus=(0,)),
        gpus=[Gpu(reserved=GIB // 2)],
        words="which has 23.5 GiB",
        final=True,
    ),
    "RAM comes before VRAM": Case(
        want=MemoryRequirement(ram_bytes=20 * GIB, vram_bytes=99 * GIB, gpus=(0,)),
        gpus=[Gpu()],
        host=host(available=GIB),
        words="of RAM free",
    ),
    "a share": Case(want=MemoryRequirement(fraction=0.95, gpus=(0,)), gpus=[Gpu()]),
    "a late share": Case(
        want=MemoryRequirement(fraction=0.95, gpus=(0,)),
        gpus=[Gpu(free=22 * GIB)],
        words="22.0 of 22.8 GiB free",
    ),
    "a share is of what the driver leaves": Case(
        want=MemoryRequirement(fraction=0.99, gpus=(0,)),
        gpus=[Gpu(reserved=GIB // 2, free=23 * GIB + GIB // 3)],
    ),
    "an estimate above the GPU may still fit": Case(
        want=MemoryRequirement(estimate_bytes=40 * GIB, least_bytes=20 * GIB, gpus=(0,)),
        gpus=[Gpu()],
    ),
    "an estimate whose least is not known may still fit": Case(
        want=MemoryRequirement(estimate_bytes=40 * GIB, gpus=(0,)),
        gpus=[Gpu()],
    ),
    "an estimate waits": Case(
        want=MemoryRequirement(estimate_bytes=40 * GIB, least_bytes=20 * GIB, gpus=(0,)),
        gpus=[Gpu(free=22 * GIB)],
        words="22.0 of 23.0 GiB free on GPU 0, by an estimate",
    ),
    "weights that no GPU holds": Case(
        want=MemoryRequirement(estimate_bytes=40 * GIB, least_bytes=30 * GIB, gpus=(0,)),
        gpus=[Gpu()],
        words="the model needs at least 30.0 GiB, GPU 0 has 24.0 GiB",
        final=True,
    ),
    "weights that the one GPU they go to cannot hold": Case(
        want=MemoryRequirement(
            estimate_bytes=40 * GIB, least_bytes=30 * GIB, gpus=None, split=(1,)
        ),
        gpus=[Gpu(), Gpu()],
        words="the model needs at least 30.0 GiB, GPU 0 has 24.0 GiB",
        final=True,
    ),
    "weights that both GPUs hold": Case(
        want=MemoryRequirement(estimate_bytes=40 * GIB, least_bytes=30 * GIB, gpus=None),
        gpus=[Gpu(), Gpu()],
    ),
    "weights that both GPUs cannot hold": Case(
        want=MemoryRequirement(estimate_bytes=60 * GIB, least_bytes=50 * GIB, gpus=None),
        gpus=[Gpu(), Gpu()],
        words="2 GPUs together have 48.0 GiB",
        final=True,
    ),
    "what was seen beats an estimate that says never": Case(
        want=MemoryRequirement(
            estimate_bytes=60 * GIB, least_bytes=50 * GIB, peak=seen(9 * GIB), gpus=(0,)
        ),
        gpus=[Gpu()],
    ),
    "a GPU that is not there": Case(
        want=MemoryRequirement(gpus=(0, 2)),
        gpus=[Gpu()],
        words="GPU 2 is claimed, the driver shows 1 in all",
    ),
    "no GPU at all": Case(
        want=MemoryRequirement(gpus=None), words="a GPU is claimed, the driver shows 0"
    ),
    "a lost GPU": Case(
        want=MemoryRequirement(gpus=None, assume_free=True),
        gpus=[Gpu(), Gpu(quality="opaque", kind="lost", problem="it fell off the bus")],
        words="GPU 1: it fell off the bus",
        broken="lost",
    ),
    "another GPU that is lost": Case(
        want=MemoryRequirement(gpus=(0,)), gpus=[Gpu(), Gpu(quality="opaque", kind="lost")]
    ),
    "opaque": Case(
        want=MemoryRequirement(vram_bytes=GIB, gpus=(0,)),
        gpus=[Gpu(quality="opaque", problem="MIG divides it")],
        words="GPU 0: MIG divides it (need.assume_free",
        final=True,
    ),
    "opaque with an unknown need": Case(
        want=MemoryRequirement(gpus=(0,)),
        gpus=[Gpu(quality="opaque")],
        words="cannot be read",
        final=True,
    ),
    "assumed free": Case(
        want=MemoryRequirement(vram_bytes=99 * GIB, gpus=(0,), assume_free=True),
        gpus=[Gpu(quality="opaque", total=0, free=0)],
    ),
    "assumed free beside a GPU that is not": Case(
        want=MemoryRequirement(vram_bytes=20 * GIB, gpus=None, assume_free=True),
        gpus=[Gpu(quality="opaque", total=0, free=0), Gpu(free=GIB)],
        words="1.0 of 10.2 GiB free on GPU 1",
    ),
    "one pool": Case(
        want=MemoryRequirement(vram_bytes=60 * GIB, ram_bytes=30 * GIB, gpus=None),
        gpus=[GB10],
        host=ROOMY,
    ),
    "one pool has to hold both": Case(
        want=MemoryRequirement(vram_bytes=60 * GIB, ram_bytes=50 * GIB, gpus=None),
        gpus=[GB10],
        host=ROOMY,
        words="100.0 of 110.2 GiB free in the memory that GPU 0 shares with the host",
    ),
    "one pool that is too small": Case(
        want=MemoryRequirement(vram_bytes=100 * GIB, ram_bytes=50 * GIB, gpus=None),
        gpus=[GB10],
        host=ROOMY,
        words="which is 128.0 GiB",
        final=True,
    ),
    "a pool with an unknown need of its GPU": Case(
        want=MemoryRequirement(ram_bytes=110 * GIB, gpus=None),
        gpus=[GB10],
        host=ROOMY,
        words="of RAM free",
    ),
    "a NUMA node is no pool": Case(
        want=MemoryRequirement(vram_bytes=90 * GIB, ram_bytes=20 * GIB, gpus=None),
        gpus=[Gpu(total=96 * GIB, free=95 * GIB, quality="numa")],
    ),
    "an unknown need": Case(want=MemoryRequirement(gpus=None), gpus=[Gpu(free=0)]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_missing(case: Case) -> None:
    """A start is admitted, late, or hopeless, with the figures that decided."""
    short = verdict(case.want, case.gpus, case.host or host())
    if not case.words:
        assert short is None
        return
    assert short is not None
    assert case.words in sentence_of(short)
    assert (short.final, short.error_kind) == (case.final, case.broken)


@pytest.mark.parametrize(
    ("want", "gpu", "words", "rival"),
    [
        (MemoryRequirement(vram_bytes=GIB, gpus=(0,)), Gpu(processes=[(5, True)]), "", False),
        (
            MemoryRequirement(vram_bytes=GIB, gpus=(0,), rivals=frozenset({RIVAL})),
            Gpu(processes=[(5, True), (3, False)]),
            f"{RIVAL} still has memory on GPU 0",
            True,
        ),
        (
            MemoryRequirement(vram_bytes=GIB, gpus=(0,), own=OWN),
            Gpu(processes=[(4, True)]),
            OWN,
            False,
        ),
        (MemoryRequirement(vram_bytes=GIB, gpus=(0,), own=OWN), Gpu(processes=None), "", False),
        (
            MemoryRequirement(vram_bytes=GIB, gpus=(1,), own=OWN),
            Gpu(processes=[(4, True)]),
            "",
            False,
        ),
        # An unknown need.
        (MemoryRequirement(gpus=(0,)), Gpu(), "", False),
        (MemoryRequirement(gpus=(0,)), Gpu(processes=[(5, False)]), "", False),
        (
            MemoryRequirement(gpus=(0,)),
            Gpu(processes=[(5, True)]),
            "1 process still on GPU 0",
            False,
        ),
        (
            MemoryRequirement(gpus=(0,)),
            Gpu(processes=[(5, True), (0, True)]),
            "2 processes still",
            False,
        ),
        (MemoryRequirement(gpus=(0,)), Gpu(processes=[(2, True)]), "", False),
        (MemoryRequirement(gpus=(0,)), Gpu(processes=None), "", False),
        (
            MemoryRequirement(gpus=(0,)),
            Gpu(processes=None, free=4 * GIB),
            "20.0 GiB still in use",
            False,
        ),
        (
            MemoryRequirement(gpus=(0,), assume_free=True),
            Gpu(processes=None, free=0, quality="opaque"),
            "",
            False,
        ),
    ],
)
def test_who_is_in_the_way(want: MemoryRequirement, gpu: Gpu, words: str, rival: bool) -> None:  # noqa: FBT001
    """Rivals and remains forbid a start; strangers do so where the need is unknown."""
    units: Mapping[int, str] = {2: NEIGHBOUR, 3: RIVAL, 4: OWN, 5: USERS}
    short = fit.in_the_way(want, devices(gpu, Gpu()), lambda pid: units.get(pid, ""))
    if not words:
        assert short is None
        return
    assert short is not None
    assert words in sentence_of(short)
    assert (short.unit == RIVAL) == rival


RUN = MemoryRequirement(gpus=(0,), strangers=True)


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (Gpu(free=21 * GIB, processes=[(5, True)]), "2.0 GiB without an owner still on GPU 0"),
        (Gpu(free=22 * GIB, processes=[(5, True)]), ""),
        (Gpu(free=21 * GIB, processes=[(0, True)]), "3.0 GiB without an owner"),
        (Gpu(free=21 * GIB, processes=[(5, True)], sizes_told=False), ""),
        (Gpu(free=0, quality="opaque", processes=[]), ""),
    ],
)
def test_a_command_leaves_strangers_alone(gpu: Gpu, words: str) -> None:
    """Only memory that no living process holds is late, more than 1 GiB of it."""
    short = fit.in_the_way(RUN, devices(gpu), lambda pid: {5: USERS}.get(pid, ""))
    assert words in ("" if short is None else sentence_of(short))
    assert (short is None) == (not words)


@pytest.mark.parametrize(
    ("want", "asked"),
    [
        (MemoryRequirement(vram_bytes=GIB, gpus=(0,)), False),
        (MemoryRequirement(vram_bytes=GIB, gpus=(0,), own=OWN), True),
        (MemoryRequirement(vram_bytes=GIB, gpus=(0,), rivals=frozenset({RIVAL})), True),
        (MemoryRequirement(gpus=(0,)), True),
    ],
)
def test_lists_are_asked_for_when_they_matter(want: MemoryRequirement, asked: bool) -> None:  # noqa: FBT001
    """Process lists cost the driver a lock; a need without foes does without them."""
    assert fit.needs_lists(want, devices(Gpu())) == asked


@pytest.mark.parametrize(
    ("qualities", "at_once"),
    [
        (("exact", "exact"), True),
        (("exact", "unified"), False),
        (("numa", "exact"), False),
        (("opaque", "exact"), True),
    ],
)
def test_only_exact_readings_prove_at_once(qualities: Sequence[str], *, at_once: bool) -> None:
    """Any other kind has to be confirmed."""
    gpus = [Gpu(quality=q) for q in qualities]
    assert fit.is_proved_at_once(MemoryRequirement(gpus=None), devices(*gpus)) == at_once


def test_what_is_held_is_counted_where_the_need_goes() -> None:
    """On the used GPUs, or in main memory where there are none."""
    box = devices(Gpu(free=20 * GIB), Gpu(free=4 * GIB))
    assert fit.held_bytes(MemoryRequirement(gpus=None), box, host()) == 24 * GIB
    assert fit.held_bytes(MemoryRequirement(gpus=(1,)), box, host()) == 20 * GIB
    assert fit.held_bytes(MemoryRequirement(ram_bytes=1), (), host()) == 4 * GIB


# --- for any need on any box -------------------------------------------------------------------

sizes = st.integers(min_value=0, max_value=30 * GIB)
gpus_ = st.builds(
    Gpu,
    free=st.integers(min_value=0, max_value=24 * GIB),
    reserved=st.sampled_from([0, 300 << 20]),
    quality=st.sampled_from(["exact", "exact", "numa", "unified", "opaque"]),
)
optional_sizes = st.none() | sizes
wants = st.builds(
    MemoryRequirement,
    ram_bytes=optional_sizes,
    vram_bytes=optional_sizes,
    fraction=st.none() | st.floats(min_value=0.01, max_value=1.0),
    estimate_bytes=optional_sizes,
    least_bytes=optional_sizes,
    peak=st.none() | st.builds(lambda a, b: seen(a, b, ram=a), sizes, sizes),
    gpus=st.sampled_from([None, (0,), (1, 0), (0, 1)]),
    split=st.lists(st.floats(min_value=0.0, max_value=9.0), max_size=3).map(tuple),
    margin_bytes=st.sampled_from([0, MARGIN]),
    assume_free=st.booleans(),
)
boxes = st.tuples(gpus_, gpus_)


def verdict(want: MemoryRequirement, gpus: Sequence[Gpu], now: HostReading) -> Shortfall | None:
    read: Sequence[DeviceReading] = devices(*gpus)
    return next(fit.shortfalls(want, read, now), None)


@given(wants, boxes, sizes)
def test_nobody_is_admitted_where_too_little_is_free(
    want: MemoryRequirement, gpus: Sequence[Gpu], available: int
) -> None:
    """After an admission every used GPU has what was asked of it, and main memory too."""
    now = host(available=available)
    if verdict(want, gpus, now) is not None:
        return
    present = devices(*gpus)
    ours = used(want, present)
    for device, demand in zip(ours, gpu_demands(want, present) or [], strict=False):
        if device.quality != "opaque":
            assert device.free_bytes >= demand.asked_bytes(usable_bytes(device))
            if want.vram_bytes is not None and want.peak is None:
                assert device.free_bytes >= want.margin_bytes
        else:
            assert want.assume_free
    pooled = any(d.quality == "unified" for d in ours)
    if want.ram_bytes is not None and want.peak is None and not pooled:
        assert available >= want.ram_bytes + want.margin_bytes
    if (
        want.ram_bytes is not None
        and want.vram_bytes is not None
        and want.peak is None
        and len(ours) == 1
    ):
        free = ours[0].free_bytes if pooled else ours[0].free_bytes + available
        assert ours[0].quality == "opaque" or free >= want.ram_bytes + want.vram_bytes


@given(wants, boxes, sizes, st.tuples(sizes, sizes, sizes))
def test_more_free_memory_never_refuses(
    want: MemoryRequirement, gpus: Sequence[Gpu], available: int, back: tuple[int, int, int]
) -> None:
    """A start that is admitted stays admitted when memory comes back, anywhere."""
    if verdict(want, gpus, host(available=available)) is not None:
        return
    richer = [
        replace(g, free=min(24 * GIB, g.free + more)) for g, more in zip(gpus, back, strict=False)
    ]
    now = host(available=min(32 * GIB, available + back[2]))
    assert verdict(want, richer, now) is None


@given(wants, boxes)
def test_an_empty_box_is_never_just_late(want: MemoryRequirement, gpus: Sequence[Gpu]) -> None:
    """With all but 1 GiB free everywhere a start is admitted or hopeless, but for a tight fit."""
    empty = [replace(g, free=g.total - g.reserved - NEVER_EMPTY_BYTES // 4) for g in gpus]
    short = verdict(want, empty, host(available=32 * GIB - NEVER_EMPTY_BYTES // 4))
    if short is None or short.final:
        return
    # Declared, or seen, to need what even an empty box hardly has.
    certain = max((d.certain_bytes for d in gpu_demands(want, devices(*empty)) or []), default=0)
    pooled = any(g.quality == "unified" for g in empty)
    assert pooled or max(certain, want.ram_bytes or 0) > 22 * GIB


@pytest.mark.parametrize(
    ("want", "source"),
    [
        (MemoryRequirement(peak=seen(9 * GIB), vram_bytes=GIB, gpus=(0,)), Source.OBSERVED),
        (MemoryRequirement(peak=seen(9 * GIB), fraction=0.3, gpus=(0,)), Source.OBSERVED),
        (MemoryRequirement(peak=seen(9 * GIB), fraction=0.9, gpus=(0,)), Source.UTILISATION),
        (MemoryRequirement(vram_bytes=GIB, fraction=0.9, gpus=(0,)), Source.DECLARED),
        (MemoryRequirement(fraction=0.9, estimate_bytes=GIB, gpus=(0,)), Source.UTILISATION),
        (MemoryRequirement(estimate_bytes=GIB, gpus=(0,)), Source.ESTIMATE),
        (MemoryRequirement(gpus=(0,)), Source.UNKNOWN),
    ],
)
def test_the_source_has_a_word(want: MemoryRequirement, source: Source) -> None:
    """Sources have the domain's words: a share above an observed peak is the engine's."""
    assert source_of(want, devices(Gpu())) == source
