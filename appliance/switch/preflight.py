"""Preflight: all findings that speak against an operation, before anything is touched."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from appliance.model.claims import Claim, gpu_indexes
from appliance.model.memory import GroupMemory
from appliance.model.names import RUN_UNIT, profile_of
from appliance.model.observed import Observed
from appliance.model.operations import Goal, Kind
from appliance.model.profile import Applied, Catalogue
from appliance.model.words import Mark
from appliance.switch.engine_findings import build_findings, file_findings
from appliance.switch.goals import in_the_way
from appliance.switch.memory import fit
from appliance.switch.memory.fit import Shortfall
from appliance.switch.memory.peak import ObservedPeak
from appliance.switch.memory.requirement import MemoryRequirement
from appliance.switch.memory_findings import (
    Leaving,
    Prediction,
    prediction_of,
    ram_findings,
    reader_failure,
    readiness,
    staying,
    vram_findings,
)
from appliance.switch.need import BoxNeed, requirement_of, resolve
from appliance.switch.preflight_facts import (
    BoxFacts,
    Level,
    PreflightFinding,
    ProfileFacts,
    amount_of,
    named,
    refuse,
    warn,
)

_NO_PEAKS: Final[Mapping[str, ObservedPeak]] = {}
_NO_GROUPS: Final[Mapping[str, GroupMemory]] = {}


def findings(
    kind: Kind,
    goal: Goal,
    *,
    catalogue: Catalogue,
    observed: Observed,
    marks: Mapping[str, Mark],
    facts: Mapping[str, ProfileFacts],
    box: BoxFacts,
    peaks: Mapping[str, ObservedPeak] = _NO_PEAKS,
    groups: Mapping[str, GroupMemory] = _NO_GROUPS,
) -> tuple[PreflightFinding, ...]:
    """Return every finding on the profiles that `goal` starts; one REFUSE stops the operation.

    Args:
        kind: Of the operation.
        goal: The state that it is to reach.
        catalogue: Every applied profile.
        observed: Their units.
        marks: Marks that people have set.
        facts: Facts about the started profiles.
        box: The host.
        peaks: The most that profiles were seen to hold.
        groups: Main memory of running profiles; those that are absent are not known.
    """
    found: list[PreflightFinding] = []
    together = (*goal.start, *staying(goal, catalogue, observed))
    devices = tuple(box.devices.values())
    needs = {n: resolve(catalogue[n], peaks.get(n), devices, box.ram_total_bytes) for n in together}
    prediction = prediction_of(box, leaving_of(goal, catalogue, observed, groups))
    lacking_ram: dict[str, Shortfall] = {}
    for name in goal.start:
        applied = catalogue[name]
        found += _start_findings(kind, name, goal, catalogue=catalogue, observed=observed)
        if marks.get(name, applied.first_mark) is Mark.RETIRED:
            found.append(refuse(f"{name} is retired: appliance mark {name} standby"))
        found += _host_findings(applied, facts.get(name, ProfileFacts()), goal, catalogue, observed)
        requirement = _requirement(applied, peaks.get(name), observed, box)
        lacking = tuple(fit.shortfalls(requirement, prediction.devices, prediction.host))
        lacking_ram.update((name, short) for short in lacking if short.kind == fit.RAM)
        if applied.gpus:
            found += _gpu_findings(
                applied, needs[name], requirement, box, prediction=prediction, lacking=lacking
            )
    found += ram_findings(goal, needs, together, box, lacking_ram)
    return tuple(found)


def leaving_of(
    goal: Goal,
    catalogue: Catalogue,
    observed: Observed,
    groups: Mapping[str, GroupMemory] = _NO_GROUPS,
) -> Leaving:
    """Return the profiles that end before `goal` is started, with their main memory where known."""
    running = [n for n in observed.busy() if n in {*goal.stop, *goal.start} and n in catalogue]
    return Leaving(
        names={*goal.stop, *running},
        running=tuple(catalogue[n] for n in running),
        groups=groups,
    )


def refusal(found: Iterable[PreflightFinding]) -> str:
    """Return the refusing findings as one text, a line each; empty: admitted."""
    return "\n".join(f.text for f in found if f.level is Level.REFUSE)


def phase_texts(found: Iterable[PreflightFinding]) -> Iterator[str]:
    """Yield the texts for the phase of an operation that is admitted, all that it needs in the last one."""
    admitted = [one for one in found if one.level is not Level.REFUSE]
    yield from (one.text for one in admitted if one.source is None)
    yield "; ".join(one.text for one in admitted if one.source is not None)


def _requirement(
    applied: Applied, peak: ObservedPeak | None, observed: Observed, box: BoxFacts
) -> MemoryRequirement:
    """Return the requirement that the gate will have; running rivals have their own findings."""
    idle = tuple(n for n in applied.conflicts if observed.unit(n).idle)
    return requirement_of(applied, peak, margin_bytes=box.margin_bytes, rivals=idle)


def _gpu_findings(
    applied: Applied,
    need: BoxNeed,
    requirement: MemoryRequirement,
    box: BoxFacts,
    *,
    prediction: Prediction,
    lacking: Iterable[Shortfall],
) -> Iterable[PreflightFinding]:
    found = readiness(applied, box)
    if refusal(found):
        return found
    return (*found, *vram_findings(applied, need, requirement, prediction, lacking))


def _start_findings(
    kind: Kind, name: str, goal: Goal, *, catalogue: Catalogue, observed: Observed
) -> Iterable[PreflightFinding]:
    if not observed.unit(name).loaded:
        yield refuse(f"the unit of {name} is not installed: sudo appliance apply")
    for rival in sorted(in_the_way(name, catalogue)):
        if rival in goal.start:
            yield refuse(f"{name} and {rival} can never run together")
        elif rival not in goal.stop and not observed.unit(rival).idle:
            yield refuse(
                f"{rival} runs on {_devices(catalogue[rival])}; {kind} never evicts:"
                f" appliance switch {name}"
            )


def _devices(applied: Applied) -> str:
    return " and ".join(sorted(applied.claim.devices)) or "no device"


def _host_findings(
    applied: Applied, facts: ProfileFacts, goal: Goal, catalogue: Catalogue, observed: Observed
) -> Iterable[PreflightFinding]:
    file = applied.source_path.rpartition("/")[2]
    yield from file_findings(applied, facts)
    yield from build_findings(applied, facts.build)
    if facts.port_holder is not None and not _freed(applied, goal, catalogue, observed):
        yield refuse(
            f"port {applied.endpoint.port} is in use by {facts.port_holder}:"
            f" stop it, or give {applied.name} another port in {file}"
        )
    if facts.edited:
        yield warn(f"{file} has changed since it was applied: sudo appliance apply")


def _freed(applied: Applied, goal: Goal, catalogue: Catalogue, observed: Observed) -> bool:
    """Tell whether the listener on the port is this profile or one that will be stopped."""
    if not observed.unit(applied.name).idle:
        return True
    port = applied.endpoint.port
    return any(
        n in catalogue and catalogue[n].endpoint.port == port and not observed.unit(n).idle
        for n in goal.stop
    )


# --- a command in place of models ------------------------------------------------------


def command_findings(
    kind: Kind, goal: Goal, observed: Observed, box: BoxFacts
) -> tuple[PreflightFinding, ...]:
    """Return findings against the command of `goal` with its claim; none for other kinds."""
    if kind is not Kind.RUN:
        return ()
    claim = Claim(devices=frozenset(goal.claim))
    return (*_run_unit_findings(observed), *(_claim_findings(claim, box) if claim.gpus else ()))


def _run_unit_findings(observed: Observed) -> Iterable[PreflightFinding]:
    if not observed.run.loaded:
        yield refuse(f"{RUN_UNIT} is not installed: run install.sh again")
    elif not observed.run.idle:
        yield refuse(f"a command runs already: sudo systemctl stop {RUN_UNIT} ends it")


def _claim_findings(claim: Claim, box: BoxFacts) -> Iterable[PreflightFinding]:
    present = box.gpu_total_bytes
    if failure := reader_failure(box):
        yield refuse(f"{failure} (--gpus none takes the CPU alone)")
        return
    if box.gpu_error is not None and not present:
        yield refuse(f"no GPU can be read: {box.gpu_error} (--gpus none takes the CPU alone)")
        return
    indexes = gpu_indexes(claim)
    wanted = sorted(present) if indexes is None else sorted(indexes)
    if missing := [n for n in wanted if n not in present]:
        count = len(present)
        yield refuse(f"there is no GPU {missing[0]}: the box has {count or 'none'}")
        return
    if not wanted:
        yield refuse("the box has no GPU: --gpus none takes the CPU alone")
        return
    for index in wanted:
        yield from _foreign_findings(index, box)


def _foreign_findings(index: int, box: BoxFacts) -> Iterable[PreflightFinding]:
    """Yield warnings of memory that no switch frees; the caller decides whether it is needed."""
    for holder in box.gpu_holders.get(index, ()):
        if profile_of(holder.unit) is None:
            yield warn(f"{amount_of(holder)} of GPU {index} stays with {named(holder)}")
