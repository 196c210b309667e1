"""Preflight and gate: two that ask one rule, on random boxes.

The gate goes by the command line of the unit and by what it reads once the old model has ended; the
preflight predicts that from the box as it is. To replay a case: `world(SEED)`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from appliance.launch import gate
from appliance.launch.program import Options
from appliance.launch.shortfall_text import sentence_of
from appliance.model.memory import DeviceMemory, GpuState
from appliance.model.names import unit_of
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.model.operations import Goal, Kind
from appliance.model.profile import Need
from appliance.switch.memory import fit
from appliance.switch.memory.fit import Shortfall
from appliance.switch.memory.peak import ObservedPeak, decoded, encoded
from appliance.switch.memory.requirement import GATE_SWITCHES, MARGIN_BYTES, MemoryRequirement
from appliance.switch.preflight import findings
from appliance.switch.preflight_facts import BoxFacts, Level
from appliance.switch.units.backend_unit import Layout, gate_argv
from appliance.system.gpus.sampler_client import Device
from tests.fakes.profiles import applied
from tests.property.memory_worlds import GIB, NAME, RAM, RIVAL, Card, Use, World, world

CASES: Final = 20_000
CHUNKS: Final = 8

OWN_RULES: Final = {
    # A declared figure, or a share, that is too small for the weights passes the gate and fails to
    # load, after the old model has been stopped.
    "weights alone": re.compile("needs at least"),
    # The gate sees one backend, and only what is available now: what runs beside it may not have
    # taken yet what it needs, and the share of an engine on the CPU is in no unit.
    "needs of all that runs together": re.compile(
        r"[a-z, ]+ needs? ≈[0-9.]+ GiB of RAM(?: together)?, the box has [0-9.]+$"
    ),
}
"""Refusals of the preflight's own, with their sentences."""

GUESSES: Final = (
    # All of it is expected back: a wrong refusal cannot be overruled, and the gate, which sees what
    # came back, decides.
    "memory of what leaves that no list tells",
    # What a driver counts a process for is not all that it had.
    "up to 1 GiB of nobody's, beside a process that leaves",
    # Pages that a driver pins for a process, or the kernel has of it, are in no figure of it.
    "main memory of what leaves",
    # On AMD's GPUs only root sees them all.
    "processes that the supervisor's user may not see",
)
"""Places where the preflight may admit what the gate refuses: those of `World.uncertain`."""


def requirement(case: World) -> MemoryRequirement:
    """Return the gate's requirement, from its command line and the file of peaks."""
    layout = Layout(version="1", systemd=252, margin_bytes=case.margin_bytes, needs_dir="/nowhere")
    argv = gate_argv(case.profile, layout)
    options = Options(argv[argv.index("--name") :], gate._FLAGS, GATE_SWITCHES)
    found = gate.requirement_from(options, own=unit_of(NAME))
    found.peak = None if case.peak is None else peak_from_disk(case.peak, options)
    return found


def peak_from_disk(peak: ObservedPeak, options: Options) -> ObservedPeak | None:
    """Through the file's form and the fingerprint of the unit."""
    kept = decoded(encoded(peak))
    assert kept == peak
    return kept.of(options.text("fingerprint", ""))


def gates_verdict(case: World) -> Sequence[Shortfall]:
    """Return every shortfall and obstacle that the gate finds once leaving profiles have ended."""
    read, host = case.after()
    devices = [device(d) for d in read]
    needed = requirement(case)
    short = tuple(fit.shortfalls(needed, devices, host))
    if short or not (needed.uses_gpus and fit.needs_lists(needed, devices)):
        return short
    units = {use.pid: use.unit for card in case.cards for use in card.uses}
    found = fit.in_the_way(needed, devices, lambda pid: units.get(pid, ""))
    return () if found is None else (found,)


def device(memory: DeviceMemory) -> Device:
    """A reading as the gate's reader gives it."""
    processes = [
        {"pid": h.pid, "bytes": h.held_bytes, "compute": h.compute} for h in memory.holders or ()
    ]
    return Device(
        {
            "index": memory.index,
            "uuid": memory.uuid,
            "name": memory.name,
            "total": memory.total_bytes,
            "free": memory.free_bytes,
            "used": memory.used_bytes,
            "reserved": memory.reserved_bytes,
            "quality": str(memory.quality),
            "kind": "" if memory.state is GpuState.OK else str(memory.state),
            "problem": memory.problem,
            "processes": None if memory.holders is None else processes,
        }
    )


def refusals(case: World) -> Sequence[str]:
    """Return the preflight's reasons to refuse the switch."""
    up = ObservedUnit(active=ActiveState.ACTIVE, main_pid=1)
    units = {NAME: up if case.restarted else ObservedUnit(), RIVAL: ObservedUnit()}
    devices = case.before()
    lost = any(d.state is not GpuState.OK for d in devices)
    found = findings(
        Kind.SWITCH,
        Goal(start=(NAME,), stop=case.stop),
        catalogue={**case.running, NAME: case.profile},
        observed=Observed(units=units | dict.fromkeys(case.running, up)),
        marks={},
        facts={},
        box=BoxFacts(
            ram_total_bytes=case.ram_total_bytes,
            ram_available_bytes=case.ram_available_bytes,
            gpu_state=GpuState.LOST if lost else GpuState.OK,
            devices={d.index: d for d in devices},
            margin_bytes=MARGIN_BYTES if case.margin_bytes is None else case.margin_bytes,
        ),
        peaks={} if case.peak is None else {NAME: case.peak},
        groups=case.groups,
    )
    return [f.text for f in found if f.level is Level.REFUSE]


def divergence(case: World) -> str:
    """Return an unexplained difference of the two; empty: they agree."""
    refused, missing = refusals(case), gates_verdict(case)
    if refused and not missing:
        if all(any(rule.search(text) for rule in OWN_RULES.values()) for text in refused):
            return ""
        return f"refused in vain: {'; '.join(refused)}"
    if missing and not refused:
        unexpected = [s for s in missing if not is_guessed(s, case)]
        return f"admitted in vain: {'; '.join(map(sentence_of, unexpected))}" if unexpected else ""
    return ""


def is_guessed(short: Shortfall, case: World) -> bool:
    """Whether nobody could know beforehand what the gate found there."""
    if short.kind in {fit.REMAINS, fit.STRANGERS}:
        return case.blind
    places = {RAM, short.index} if short.kind in {fit.RAM, fit.POOL} else {short.index}
    return bool(places & case.uncertain)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_preflight_and_gate_agree(chunk: int) -> None:
    """Preflight and gate give the same verdict on a switch."""
    seeds = range(chunk, CASES, CHUNKS)
    found = {seed: text for seed in seeds if (text := divergence(world(seed)))}
    first = "\n".join(f"world({seed}): {text}" for seed, text in list(found.items())[:5])
    assert not found, f"{len(found)} of {len(seeds)} cases diverge:\n{first}"


def test_the_cases_are_of_every_kind() -> None:
    """Both verdicts, every kind of shortfall and every source are common among the cases."""
    seen: Counter[str] = Counter()
    for seed in range(0, CASES, 10):
        missing = gates_verdict(world(seed))
        seen.update({s.kind for s in missing} or {"admitted"})
    kinds = {fit.MISSING, fit.BROKEN, fit.UNREADABLE, fit.RAM, fit.WEIGHTS, fit.POOL, fit.VRAM}
    assert {k for k, count in seen.items() if count > 1} >= kinds | {
        fit.REMAINS,
        fit.STRANGERS,
        "admitted",
    }
    assert seen["admitted"] > CASES // 10 // 5


def test_no_start_waits_for_what_cannot_come() -> None:
    """On a box where nobody holds anything a start is admitted, or can never be."""
    for seed in range(0, CASES, 5):
        case = world(seed)
        cards = tuple(replace(c, uses=(), nobodys_bytes=0, freed_bytes=0) for c in case.cards)
        empty = replace(case, cards=cards, ram_available_bytes=case.ram_total_bytes)
        late = [s for s in gates_verdict(empty) if not s.final]
        assert all(s.kind in {fit.MISSING, fit.BROKEN} for s in late), f"world({seed})"


def test_what_is_admitted_has_room() -> None:
    """Where the gate admits a start, what was seen or declared fits into what is free."""
    for seed in range(0, CASES, 5):
        case = world(seed)
        if gates_verdict(case):
            continue
        devices, _ = case.after()
        indexes = {d.index for d in devices} if case.profile.gpus == "all" else case.profile.gpus
        own = [d for d in devices if d.index in indexes and d.quality in {"exact", "numa"}]
        peak = case.peak.of(case.profile.fingerprint) if case.peak is not None else None
        here = peak is not None and set(peak.gpus) == {f"GPU-{i}" for i in indexes}
        if peak is not None and here:
            held = [(d, peak.gpus[d.uuid]) for d in own]
            if all(b <= d.total_bytes - d.reserved_bytes for d, b in held):
                assert all(b <= d.free_bytes for d, b in held), f"world({seed})"
        elif case.profile.need.vram_bytes is not None and len(own) == len(indexes) > 0:
            free = sum(d.free_bytes for d in own)
            assert case.profile.need.vram_bytes <= free, f"world({seed})"


def on_one_gpu(*uses: Use, peak_bytes: int, **changes: object) -> World:
    """A GPU of 24 GiB, and a profile that was seen to hold `peak_bytes` of it."""
    base = replace(applied(NAME, "gpu-0"), fingerprint="f")
    return World(
        profile=replace(base, **changes),  # type: ignore[arg-type]  # a test names real fields
        cards=(Card(index=0, uses=uses),),
        running={},
        groups={},
        peak=ObservedPeak(fingerprint="f", gpus={"GPU-0": peak_bytes}),
    )


def test_a_share_is_asked_for_whatever_was_seen() -> None:
    """A share of 0.92 does not fit beside a stranger, although the peak of 10 GiB would."""
    stranger = Use(pid=7, unit="user@1000.service", held_bytes=12 * GIB)
    case = on_one_gpu(stranger, peak_bytes=10 * GIB, vram_fraction=0.92)
    assert list(map(sentence_of, gates_verdict(case))) == ["12.0 of 22.1 GiB free on GPU 0"]
    assert refusals(case) == [
        "12.0 GiB held by python3 (pid 7, user@1000.service, user ana): stop it or wait"
    ]


def test_a_peak_that_cannot_be_true_tells_nothing() -> None:
    """Of 30 GiB on a GPU of 24 nothing follows: what is declared counts, and fits beside others."""
    stranger = Use(pid=7, unit="user@1000.service", held_bytes=19 * GIB)
    case = on_one_gpu(stranger, peak_bytes=30 * GIB, need=Need(vram_bytes=4 * GIB))
    assert (gates_verdict(case), refusals(case)) == ((), [])
    larger = replace(case, profile=replace(case.profile, need=Need(vram_bytes=5 * GIB)))
    assert list(map(sentence_of, gates_verdict(larger))) == ["5.0 of 5.2 GiB free on GPU 0"]
    assert refusals(larger) != []
