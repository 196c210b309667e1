"""Preflight: what is refused before anything is stopped, and in which words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from appliance.model.claims import NOTHING
from appliance.model.memory import DeviceMemory, GpuState, Holder, Quality
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.model.operations import Goal, Kind
from appliance.model.profile import Applied, Estimate, Need
from appliance.model.words import Mark
from appliance.switch.memory.peak import ObservedPeak
from appliance.switch.need import Source
from appliance.switch.preflight import findings, phase_texts, refusal
from appliance.switch.preflight_facts import (
    BoxFacts,
    Level,
    PreflightFinding,
    Presence,
    ProfileFacts,
    fine,
    refuse,
    warn,
)
from tests.fakes.gpu_readings import by_index, card
from tests.fakes.profiles import applied, catalogue

GIB = 1 << 30
UP = ObservedUnit(active=ActiveState.ACTIVE, main_pid=1)
GENESIS = replace(applied("genesis", "gpu-all", port=8022), engine="vllm")
AEON = applied("aeon", "gpu-all", port=8022)
EMBEDDER = replace(applied("embedder", port=8030), gpus=(0,))


def holder(held: float | None, unit: str = "", pid: int = 4121) -> Holder:
    return Holder(
        pid=pid,
        held_bytes=None if held is None else int(held * GIB),
        comm="python3",
        user="ana",
        unit=unit,
    )


def gpu(
    index: int,
    *holders: Holder,
    nobodys: float = 0.0,
    total: float = 16.0,
    **changes: object,
) -> DeviceMemory:
    """A GPU on which `holders` and, unlisted, `nobodys` GiB sit."""
    device = card(index, holders, total_bytes=int(total * GIB), nobodys_bytes=int(nobodys * GIB))
    return replace(device, **changes)  # type: ignore[arg-type]  # a test names real fields


def box(*devices: DeviceMemory, **changes: object) -> BoxFacts:
    found = BoxFacts(ram_total_bytes=32 * GIB, devices=by_index(*devices))
    return replace(found, **changes)  # type: ignore[arg-type]  # a test names real fields


def look(
    profile: Applied,
    facts_of_box: BoxFacts,
    *,
    stops: Sequence[str] = (),
    running: Sequence[str] = (),
    facts: ProfileFacts | None = None,
    peaks: Mapping[str, ObservedPeak] | None = None,
) -> tuple[PreflightFinding, ...]:
    units = {profile.name: ObservedUnit(), **dict.fromkeys(running, UP)}
    return findings(
        Kind.SWITCH,
        Goal(start=(profile.name,), stop=tuple(stops)),
        catalogue=catalogue(AEON, EMBEDDER, profile),
        observed=Observed(units=units),
        marks={},
        facts={} if facts is None else {profile.name: facts},
        box=facts_of_box,
        peaks=peaks or {},
    )


def told(found: Sequence[PreflightFinding]) -> list[tuple[Level, str]]:
    return [(f.level, f.text) for f in found]


def declared(gib: float, **changes: object) -> Applied:
    profile = replace(GENESIS, need=Need(vram_bytes=int(gib * GIB)))
    return replace(profile, **changes)  # type: ignore[arg-type]  # a test names real fields


def estimated(gib: float, least: float, **changes: object) -> Applied:
    estimate = Estimate(
        vram_bytes=int(gib * GIB),
        least_vram_bytes=int(least * GIB),
        ram_bytes=GIB,
        notes=("upper bound",),
    )
    return replace(GENESIS, estimate=estimate, **changes)  # type: ignore[arg-type]


EMPTY = box(gpu(0), gpu(1))


@pytest.mark.parametrize(
    ("profile", "refused"),
    [
        (declared(30), ""),
        (declared(33), "needs ≈33.0 GiB of VRAM, the GPUs have 32.0"),
        (
            declared(31.8),
            "needs ≈15.9 GiB on GPU 0, which has 16.0, of which 256 MiB stay free",
        ),
        (declared(20, gpu_split=(3.0, 1.0)), ""),
        (
            declared(24, gpu_split=(3.0, 1.0)),
            "needs ≈18.0 GiB on GPU 0, which has 16.0",
        ),
        (declared(17, gpu_split=(1.0,)), "needs ≈17.0 GiB on GPU 0, which has 16.0"),
        (declared(17, gpus=(1,)), "needs ≈17.0 GiB of VRAM, the GPUs have 16.0"),
        (estimated(40, 33), "needs at least ≈33.0 GiB of VRAM, the GPUs have 32.0"),
        (estimated(40, 31), ""),
        (
            estimated(40, 30, vram_fraction=0.9),
            "needs at least ≈30.0 GiB of VRAM, vllm takes at most 28.8 of the GPUs",
        ),
        (estimated(28, 15, vram_fraction=0.9), ""),
        (
            estimated(28, 15, vram_fraction=0.9, gpu_split=(1.0,)),
            "needs at least ≈15.0 GiB of VRAM, vllm takes at most 14.4 of the GPUs",
        ),
        (
            estimated(40, 33, need=Need(vram_bytes=20 * GIB)),
            "needs at least ≈33.0 GiB of VRAM, the GPUs have 32.0",
        ),
        (GENESIS, ""),
    ],
)
def test_what_cannot_fit_on_an_empty_box_is_refused(profile: Applied, refused: str) -> None:
    """GPU by GPU with the split; of an estimate only the weights count."""
    assert refusal(look(profile, EMPTY)) == refused


def test_what_has_run_here_fits_here() -> None:
    """An observed peak is never too large for the box, whatever else is said."""
    peak = ObservedPeak(
        fingerprint=GENESIS.fingerprint, gpus={"GPU-0": 16 * GIB, "GPU-1": 15 * GIB}
    )
    assert refusal(look(estimated(40, 33), EMPTY, peaks={"genesis": peak})) == ""


def test_what_the_driver_reserves_is_no_room() -> None:
    """The capacity of a GPU is what an empty one can give."""
    reserving = box(gpu(0, reserved_bytes=GIB), gpu(1, reserved_bytes=GIB))
    assert refusal(look(declared(30.5), reserving)) == (
        "needs ≈30.5 GiB of VRAM, the GPUs have 30.0"
    )


@pytest.mark.parametrize(
    ("profile", "level", "text", "source"),
    [
        (
            declared(18.6),
            Level.OK,
            "needs ≈18.6 GiB of VRAM (declared), 32.0 total",
            Source.DECLARED,
        ),
        (
            estimated(20, 15),
            Level.OK,
            "needs ≈20.0 GiB of VRAM (estimate: upper bound), 32.0 total",
            Source.ESTIMATE,
        ),
        (
            estimated(40, 15),
            Level.WARN,
            "needs ≈40.0 GiB of VRAM (estimate: upper bound), the GPUs have 32.0: it may not fit",
            Source.ESTIMATE,
        ),
        (
            replace(GENESIS, vram_fraction=0.92),
            Level.OK,
            "needs ≈29.4 GiB of VRAM (utilisation: 92 % of each GPU), 32.0 total",
            Source.UTILISATION,
        ),
        (
            replace(GENESIS, estimate_problem="architecture foo is not known"),
            Level.OK,
            "needs an unknown amount of VRAM (architecture foo is not known)",
            Source.UNKNOWN,
        ),
    ],
)
def test_a_need_is_told_with_its_source(
    profile: Applied, level: Level, text: str, source: Source
) -> None:
    """A need is told with its source, so that readers know how far to trust it."""
    found = [f for f in look(profile, EMPTY) if f.source is not None and "VRAM" in f.text]
    assert [(f.level, f.text, f.source) for f in found] == [(level, text, source)]


def test_a_share_without_room_for_the_cache_is_told() -> None:
    """An engine that takes a share would start, and then have no room for the context."""
    found = look(estimated(30, 25, vram_fraction=0.9), EMPTY)
    assert (
        Level.WARN,
        (
            "weights and cache need ≈30.0 GiB of VRAM (estimate), "
            "vllm takes at most 28.8 of the GPUs: lower ctx"
        ),
    ) in told(found)


STOP = "stop it or wait"


@pytest.mark.parametrize(
    ("profile", "devices", "refused"),
    [
        (
            declared(20),
            (gpu(0, holder(9.8)), gpu(1)),
            f"9.8 GiB held by python3 (pid 4121, user ana): {STOP}",
        ),
        (declared(20), (gpu(0, holder(1)), gpu(1)), ""),
        (declared(20), (gpu(0, holder(10, "appliance-backend-aeon.service")), gpu(1)), ""),
        (
            declared(20),
            (gpu(0, holder(10, "appliance-backend-embedder.service")), gpu(1)),
            "10.0 GiB held by embedder, which keeps it: appliance stop embedder",
        ),
        (
            declared(20),
            (gpu(0, holder(10)), gpu(1, holder(2))),
            f"12.0 GiB held by python3 (pid 4121, user ana): {STOP}",
        ),
        (
            declared(20),
            (gpu(0, holder(10)), gpu(1, holder(None))),
            f"10.0 GiB held by python3 (pid 4121, user ana): {STOP}",
        ),
        (
            declared(20),
            (gpu(0, nobodys=10), gpu(1)),
            "10.0 GiB of GPU 0 held by no listed process: look with nvidia-smi, or reboot",
        ),
        (declared(31.4), (gpu(0, nobodys=0.2), gpu(1)), "15.8 of 16.0 GiB would be free on GPU 0"),
        (declared(31), (gpu(0, nobodys=0.2), gpu(1)), ""),
        (
            declared(31),
            (gpu(0, holder(1, "appliance-backend-aeon.service"), nobodys=0.9), gpu(1)),
            "",
        ),
        (
            declared(31),
            (gpu(0, nobodys=0.9), gpu(1)),
            "0.9 GiB of GPU 0 held by no listed process: look with nvidia-smi, or reboot",
        ),
        (declared(20, gpus=(1,)), (gpu(0, holder(15)), gpu(1, total=24.0)), ""),
        (declared(12, gpu_split=(1.0,)), (gpu(0), gpu(1, holder(15))), ""),
        (
            estimated(40, 25),
            (gpu(0, holder(9)), gpu(1)),
            f"9.0 GiB held by python3 (pid 4121, user ana): {STOP}",
        ),
        (
            estimated(40, 20),
            (gpu(0, holder(9)), gpu(1)),
            f"9.0 GiB held by python3 (pid 4121, user ana): {STOP}",
        ),
        (estimated(20, 10), (gpu(0, holder(5)), gpu(1)), ""),
        (
            replace(GENESIS, vram_fraction=0.9),
            (gpu(0, holder(2)), gpu(1)),
            f"2.0 GiB held by python3 (pid 4121, user ana): {STOP}",
        ),
        (
            replace(GENESIS, vram_fraction=0.99),
            (gpu(0, holder(0.9)), gpu(1)),
            f"0.9 GiB held by python3 (pid 4121, user ana): {STOP}",
        ),
        (replace(GENESIS, vram_fraction=0.9), (gpu(0, holder(0.9)), gpu(1)), ""),
        # With an unknown need nobody else may compute there, but backends that share.
        (
            GENESIS,
            (gpu(0, holder(15)), gpu(1)),
            f"15.0 GiB held by python3 (pid 4121, user ana): {STOP}",
        ),
        (GENESIS, (gpu(0, replace(holder(15), compute=False)), gpu(1)), ""),
        (GENESIS, (gpu(0, holder(15, "appliance-backend-embedder.service")), gpu(1)), ""),
        (
            GENESIS,
            (gpu(0, holders=None, used_bytes=2 * GIB), gpu(1)),
            "the need is not known, and 2.0 GiB of GPU 0 are in use: stop the programs that hold them",
        ),
        (
            replace(GENESIS, assume_free=True),
            (gpu(0, holder(1), quality=Quality.OPAQUE), gpu(1)),
            "the need is not known, and other processes compute on GPU 0: stop them or wait",
        ),
        # Remains of a rival that does not run.
        (
            declared(1, conflicts=("aeon2",)),
            (gpu(0, holder(1, "appliance-backend-aeon2.service"), holder(1, pid=9)), gpu(1)),
            "1.0 GiB held by aeon2, which keeps it: appliance stop aeon2",
        ),
        (
            declared(1, conflicts=("aeon2",), assume_free=True),
            (gpu(0, holder(1, "appliance-backend-aeon2.service"), quality=Quality.OPAQUE), gpu(1)),
            "appliance-backend-aeon2.service still has memory on GPU 0: stop it or wait",
        ),
        (declared(20), (gpu(0, holder(None)), gpu(1)), ""),
        (declared(20), (gpu(0, holders=None), gpu(1)), ""),
    ],
)
def test_what_others_hold_counts_where_it_is_needed(
    profile: Applied, devices: Sequence[DeviceMemory], refused: str
) -> None:
    """Memory that the operation does not free is named with its owner, GPU by GPU."""
    assert refusal(look(profile, box(*devices), stops=["aeon"])) == refused


def test_what_others_hold_is_told_where_there_is_room() -> None:
    """A small holder is a warning, with what is known of it."""
    nobody = replace(holder(None), comm="", user="")
    found = look(declared(20), box(gpu(0, nobody), gpu(1)))
    text = f"memory held by a process (pid 4121, user unknown): {STOP}"
    assert (Level.WARN, text) in told(found)


ON_THE_CPU = "; to run it on the CPU: gpus = [] in genesis.toml, then sudo appliance apply"
OPAQUE = gpu(1, quality=Quality.OPAQUE, problem="MIG divides it", total=0.0)


@pytest.mark.parametrize(
    ("facts", "refused"),
    [
        (
            box(gpu_state=GpuState.NO_DRIVER, gpu_error="the NVIDIA driver is not loaded"),
            f"genesis needs a GPU, and none can be read: the NVIDIA driver is not loaded{ON_THE_CPU}",
        ),
        (
            box(gpu_state=GpuState.NO_LIBRARY),
            f"genesis needs a GPU, and none can be read: no-library{ON_THE_CPU}",
        ),
        (box(gpu_error="why"), "genesis needs a GPU, and none can be read: why"),
        (
            box(gpu_state=GpuState.MISMATCH, gpu_error="they differ"),
            "driver/library mismatch after an upgrade: reboot needed",
        ),
        (
            box(gpu_state=GpuState.HUNG, gpu_error="the GPU driver hangs: no answer for 5.0 s"),
            "the GPU driver hangs: no answer for 5.0 s: wait, or reboot (appliance status)",
        ),
        (
            box(gpu_state=GpuState.READER, gpu_error="the program that reads the GPUs has died"),
            "the program that reads the GPUs has died; a new reading may succeed: try again",
        ),
        (
            box(gpu_state=GpuState.READER),
            "no reading of the GPUs; a new reading may succeed: try again",
        ),
        (
            box(gpu_state=GpuState.HUNG),
            "the GPU driver hangs: wait, or reboot (appliance status)",
        ),
        (
            box(gpu(0), gpu(1, state=GpuState.LOST, problem="it fell off the bus")),
            "GPU 1 cannot be used: it fell off the bus",
        ),
        (box(gpu(0), gpu(1, state=GpuState.DEVICE)), "GPU 1 cannot be used: device"),
        (box(), f"genesis needs a GPU, the box has none{ON_THE_CPU}"),
        (
            box(gpu(0), OPAQUE),
            (
                "memory of GPU 1 cannot be read (MIG divides it): to start genesis all the same, set"
                " need.assume_free = true in genesis.toml, then sudo appliance apply"
            ),
        ),
        (
            box(gpu(0), replace(OPAQUE, state=GpuState.LOST, problem="gone")),
            "GPU 1 cannot be used: gone",
        ),
    ],
)
def test_each_trouble_with_the_gpus_has_its_sentence(facts: BoxFacts, refused: str) -> None:
    """Without figures nothing is admitted, and what to do depends on why there are none."""
    assert refusal(look(declared(20), facts)) == refused


def test_a_profile_that_claims_nothing_may_run_on_the_cpu() -> None:
    """Beside `shared` it needs `gpus = []`, which without the other key would claim the CPU."""
    profile = declared(1, claim=NOTHING, gpus=(0,))
    assert refusal(look(profile, box())) == (
        "genesis needs a GPU, the box has none; to run it on the CPU: gpus = [], beside shared = true in"
        " genesis.toml, then sudo appliance apply"
    )


def test_a_lost_gpu_keeps_nobody_else_from_starting() -> None:
    """A profile on the GPU that works is none of its business."""
    facts = box(
        gpu(0),
        gpu(1, state=GpuState.LOST),
        gpu_state=GpuState.LOST,
        gpu_error="GPU 1: it fell off the bus",
    )
    assert refusal(look(declared(10, gpus=(0,)), facts)) == ""


def test_a_gpu_that_is_not_there_is_named() -> None:
    """With how many there are."""
    found = look(declared(10, gpus=(0, 3)), EMPTY)
    assert refusal(found) == "genesis claims GPU 3, the box has 2"


@pytest.mark.parametrize(("problem", "why"), [("MIG divides it", " (MIG divides it)"), ("", "")])
def test_a_gpu_without_figures_may_be_assumed_free(problem: str, why: str) -> None:
    """A profile that assumes free memory gets a warning of what was not checked."""
    facts = box(gpu(0), replace(OPAQUE, problem=problem))
    found = look(declared(20, assume_free=True), facts)
    assert refusal(found) == ""
    text = f"memory of GPU 1 cannot be read{why}: it is assumed to be free"
    assert (Level.WARN, text) in told(found)
    alone = look(declared(20, assume_free=True, gpus=(1,)), facts)
    assert [f.level for f in alone] == [Level.WARN]


@pytest.mark.parametrize(
    ("facts", "refused"),
    [
        (ProfileFacts(), ""),
        (
            ProfileFacts(model=Presence.MISSING),
            "model file missing: /models/g.gguf (is /models mounted?)",
        ),
        (
            ProfileFacts(model=Presence.DAMAGED, model_problem="g.gguf ends after 1 of 2 bytes"),
            "model file damaged: g.gguf ends after 1 of 2 bytes",
        ),
        (
            ProfileFacts(engine=Presence.MISSING),
            "engine not found: /usr/bin/true: install it or correct genesis.toml",
        ),
    ],
)
def test_files_that_are_missing_or_damaged(facts: ProfileFacts, refused: str) -> None:
    """A model that cannot load is refused while the old one still serves."""
    profile = declared(10, model="/models/g.gguf", model_path="/models/g.gguf")
    assert refusal(look(profile, EMPTY, facts=facts)) == refused


def test_a_model_that_was_not_checked_is_told() -> None:
    """Headers that are more than is read of a model are a warning, and refuse nothing."""
    profile = declared(10, model="/models/g.gguf", model_path="/models/g.gguf")
    facts = ProfileFacts(model=Presence.UNKNOWN, model_problem="its headers are too large")
    told = [f.text for f in look(profile, EMPTY, facts=facts) if f.level is Level.WARN]
    assert told == ["model file not checked: its headers are too large"]


@pytest.mark.parametrize(
    ("stops", "running", "refused"),
    [
        ((), (), True),
        (("aeon",), ("aeon",), False),
        (("aeon",), (), True),
        (("embedder",), ("embedder",), True),
        ((), ("genesis",), False),
    ],
)
def test_a_port_is_free_only_when_its_user_leaves(
    stops: Sequence[str],
    running: Sequence[str],
    refused: bool,  # noqa: FBT001 - a column
) -> None:
    """The listener may be the profile itself, or one on the same port that runs and is stopped."""
    facts = ProfileFacts(port_holder="ollama (pid 7, user ollama)")
    found = look(declared(10), EMPTY, stops=stops, running=running, facts=facts)
    text = (
        "port 8022 is in use by ollama (pid 7, user ollama): stop it, or give genesis another port"
        " in genesis.toml"
    )
    assert refusal(found) == (text if refused else "")


MINI = applied("mini", "cpu")


def in_ram(gib: float, source: Source) -> Applied:
    """A profile on the CPU whose RAM is known from `source`."""
    count = int(gib * GIB)
    if source is Source.ESTIMATE:
        found = Estimate(vram_bytes=0, least_vram_bytes=0, ram_bytes=count)
        return replace(MINI, estimate=found)
    return replace(MINI, need=Need(ram_bytes=count))


@pytest.mark.parametrize(
    ("gib", "source", "expected"),
    [
        (
            18,
            Source.DECLARED,
            [(Level.OK, "needs ≈18.0 GiB of RAM (declared), 32.0 total")],
        ),
        (
            33,
            Source.DECLARED,
            [(Level.REFUSE, "mini needs ≈33.0 GiB of RAM, the box has 32.0")],
        ),
        (
            33,
            Source.ESTIMATE,
            [
                (
                    Level.WARN,
                    "mini needs ≈33.0 GiB of RAM (estimate), the box has 32.0: it may not fit",
                )
            ],
        ),
        (0, Source.DECLARED, []),
    ],
)
def test_main_memory(gib: float, source: Source, expected: list[tuple[Level, str]]) -> None:
    """Refused where it is certain, a warning where it is an estimate."""
    assert told(look(in_ram(gib, source), EMPTY)) == expected


@pytest.mark.parametrize(
    ("gib", "available", "refused"),
    [
        (10, 10.25, ""),
        (
            10,
            10,
            "mini needs ≈10.2 GiB of RAM free, 10.0 GiB would be free: stop the programs that hold the rest",
        ),
        (31.9, 32, "mini needs ≈31.9 GiB of RAM, the box has 32.0, of which 256 MiB stay free"),
    ],
)
def test_main_memory_that_the_gate_would_wait_for_in_vain(
    gib: float, available: float, refused: str
) -> None:
    """With the margin, and as much as is available."""
    facts = replace(EMPTY, ram_available_bytes=int(available * GIB))
    assert refusal(look(in_ram(gib, Source.DECLARED), facts)) == refused


def test_one_pool_has_to_hold_both_needs() -> None:
    """A GPU that shares the host's memory is asked for the sum."""
    pool = gpu(0, total=32, quality=Quality.UNIFIED, free_bytes=20 * GIB, used_bytes=12 * GIB)
    facts = box(pool, ram_available_bytes=20 * GIB)
    fits = declared(10, need=Need(vram_bytes=10 * GIB, ram_bytes=9 * GIB))
    assert refusal(look(fits, facts)) == ""
    late = declared(10, need=Need(vram_bytes=12 * GIB, ram_bytes=9 * GIB))
    where = "the memory that GPU 0 shares with the host"
    assert refusal(look(late, facts)) == f"20.0 of 21.2 GiB would be free in {where}"
    never = declared(10, need=Need(vram_bytes=24 * GIB, ram_bytes=9 * GIB))
    assert refusal(look(never, facts)) == (
        f"needs ≈33.2 GiB with its margin in {where}, which is 32.0"
    )


def test_share_of_main_memory_counts_as_certain() -> None:
    """An engine that takes a share of RAM is shown its figure, and refused beside what stays."""
    mini = replace(MINI, ram_fraction=0.9375)
    assert told(look(mini, EMPTY)) == [
        (Level.OK, "needs ≈30.0 GiB of RAM (utilisation), 32.0 total")
    ]
    peak = ObservedPeak(fingerprint=EMBEDDER.fingerprint, gpus={"GPU-0": 0}, ram_bytes=2 * GIB)
    found = look(mini, EMPTY, running=["embedder"], peaks={"embedder": peak})
    assert [f.level for f in found] == [Level.REFUSE]


def test_what_runs_beside_counts_with_its_own_source() -> None:
    """The peak of one and the declared need of the other are added."""
    peak = ObservedPeak(fingerprint=EMBEDDER.fingerprint, gpus={"GPU-0": 0}, ram_bytes=2 * GIB)
    found = look(in_ram(20, Source.DECLARED), EMPTY, running=["embedder"], peaks={"embedder": peak})
    assert told(found) == [(Level.OK, "needs ≈22.5 GiB of RAM (observed and declared), 32.0 total")]


def test_a_start_without_its_unit_and_a_retired_one_are_refused() -> None:
    """A refusal names `apply` for a missing unit, and `mark` for a retired profile."""
    found = findings(
        Kind.START,
        Goal(start=("mini", "other")),
        catalogue=catalogue(MINI, applied("other", "cpu")),
        observed=Observed(units={"mini": replace(UP, loaded=False), "other": ObservedUnit()}),
        marks={"other": Mark.RETIRED},
        facts={"other": ProfileFacts(edited=True)},
        box=EMPTY,
    )
    assert refusal(found).splitlines() == [
        "the unit of mini is not installed: sudo appliance apply",
        "mini and other can never run together",
        "mini and other can never run together".replace("mini and other", "other and mini"),
        "other is retired: appliance mark other standby",
    ]
    assert told(found)[-1] == (
        Level.WARN,
        "other.toml has changed since it was applied: sudo appliance apply",
    )


def test_a_phase_tells_all_that_an_operation_needs() -> None:
    """The need of RAM, known once a model has run, does not replace that of VRAM."""
    found = (
        fine("needs 18.0 GiB of VRAM (declared), 24.0 total", Source.DECLARED, 18 << 30),
        warn("b.toml has changed since it was applied"),
        refuse("no driver"),
        fine("needs ≈2.0 GiB of RAM (observed), 32.0 total", Source.OBSERVED, 2 << 30),
    )
    assert list(phase_texts(found)) == [
        "b.toml has changed since it was applied",
        "needs 18.0 GiB of VRAM (declared), 24.0 total; needs ≈2.0 GiB of RAM (observed), 32.0 total",
    ]
