"""Verification of a model that answers: whether it runs as its profile declares.

A profile declares facts that its engine has to report about itself, on its pages or in its log. Each of
them is in one of three states: the engine reports the same, it reports something else, or it reports
nothing about it. A value that cannot be compared, such as a word where the profile declares a
number, counts as nothing.

The box shows where a model is, whatever its engine says: one that finds no GPU computes on the CPU and
answers all the same; one whose mlock is refused says so in its log alone, and its pages are evicted
under pressure.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.self_report import Reading, ReportPage, shown, version_words
from appliance.model.amounts import size_of_total
from appliance.model.engine_build import EngineBuild
from appliance.model.memory import GroupMemory
from appliance.model.names import unit_of
from appliance.model.patch_report import verdicts
from appliance.model.profile import Applied
from appliance.model.running_facts import DeclaredFact, ReportedFact, SelfDescription, Topic
from appliance.model.spec import Profile
from appliance.switch.preflight_facts import BoxFacts

_APPLIED: Final = "applied"
_ROUNDED: Final = 0.02
"""Share by which buffers may differ from the tensors in them: backends align and pad each."""
_ROUNDED_BYTES: Final = 32 << 20


def declared_facts(profile: Profile, gpu_weights: range | None = None) -> tuple[DeclaredFact, ...]:
    """Return the facts of a valid profile; a mismatch that it allows fails nothing.

    Args:
        profile: The profile.
        gpu_weights: Least and most bytes of its model's weights on the GPUs; None: not known.
    """
    facts = (*_facts(profile), *_weight_facts(gpu_weights))
    return tuple(
        replace(fact, fails=fact.fails and fact.topic not in profile.allow_mismatch)
        for fact in facts
    )


def _weight_facts(placed: range | None) -> Iterator[DeclaredFact]:
    """Yield the weights that belong on the GPUs: experts on the wrong side make a difference of GiB."""
    if placed is not None:
        yield DeclaredFact(
            topic=Topic.CPU_EXPERTS,
            key="gpu_layers, cpu_experts",
            text=f"{placed.stop / (1 << 30):.2f} GiB",
            least=max(0, int(placed.start * (1 - _ROUNDED)) - _ROUNDED_BYTES),
            most=int(placed.stop * (1 + _ROUNDED)) + _ROUNDED_BYTES,
        )


def _facts(profile: Profile) -> Iterator[DeclaredFact]:
    yield from ENGINES[profile.engine].declared(profile)
    for name in () if profile.patch is None else profile.patch.expect:
        yield DeclaredFact(
            topic=Topic.PATCH,
            key="patch.expect",
            text=_APPLIED,
            words=(_APPLIED,),
            subject=name,
        )


def build_facts(build: EngineBuild | None) -> Iterator[DeclaredFact]:
    """Yield the build that the command was spelled for; nothing where it is not known.

    A difference fails nothing: programs write versions in more than one form.
    """
    if build is not None and build.version:
        yield DeclaredFact(
            topic=Topic.BUILD,
            key="binary",
            text=shown(build.version),
            words=version_words(build.version),
            fails=False,
        )


def patch_facts(declared: Sequence[DeclaredFact], lines: Sequence[str]) -> Iterator[ReportedFact]:
    """Yield what the log of a start says about the patches among `declared`.

    The patch command writes to it before the engine does, and a plug-in of the engine after it: the
    last line on a patch counts.
    """
    names = tuple(fact.subject for fact in declared if fact.topic is Topic.PATCH)
    for name, is_applied in verdicts(lines, names).items():
        word = _APPLIED if is_applied else f"not {_APPLIED}"
        yield ReportedFact(topic=Topic.PATCH, source="log", text=word, words=(word,), subject=name)


def report_pages(engine: str) -> Sequence[ReportPage]:
    """Return the pages on which an engine describes itself; none of an unknown one."""
    known = ENGINES.get(engine)
    return () if known is None else known.self_report.pages


def page_description(page: ReportPage, text: str) -> SelfDescription:
    """Return the facts and faults in the text of a page."""
    return _sorted(page.read(text))


def log_description(applied: Applied, lines: Sequence[str]) -> SelfDescription:
    """Return the facts and faults in the first lines of the log of a profile's start."""
    known = ENGINES.get(applied.engine)
    reported = SelfDescription() if known is None else _sorted(known.self_report.log(lines))
    return together((reported, SelfDescription(facts=tuple(patch_facts(applied.declared, lines)))))


def together(several: Iterable[SelfDescription]) -> SelfDescription:
    """Return one description with all facts and faults of `several`."""
    known = tuple(several)
    return SelfDescription(
        facts=tuple(fact for one in known for fact in one.facts),
        faults=tuple(fault for one in known for fault in one.faults),
    )


def _sorted(readings: Iterable[Reading]) -> SelfDescription:
    facts, faults = list[ReportedFact](), list[str]()
    for reading in readings:
        if isinstance(reading, ReportedFact):
            facts.append(reading)
        else:
            faults.append(reading.text)
    return SelfDescription(facts=tuple(facts), faults=tuple(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFact:
    """Declared fact with the fact that the engine reports on it."""

    declared: DeclaredFact
    reported: ReportedFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Result of a comparison."""

    agreeing: tuple[ComparedFact, ...] = ()
    failing: tuple[ComparedFact, ...] = ()
    """Mismatches that fail an operation."""
    tolerated: tuple[ComparedFact, ...] = ()
    """Mismatches that are only reported: the profile allows them, or they change no promise of it."""
    unknown: tuple[DeclaredFact, ...] = ()
    """Facts on which the engine reports nothing."""
    faults: tuple[str, ...] = ()
    """Sentences on what could not be read or understood."""

    @property
    def mismatches(self) -> tuple[ComparedFact, ...]:
        """Return all mismatches, those that fail an operation first."""
        return self.failing + self.tolerated


def compare(declared: Sequence[DeclaredFact], reported: SelfDescription) -> Verification:
    """Return how a profile's facts compare with what its engine reports about itself.

    Of several sources on one fact, each has to agree.
    """
    agreeing, failing, tolerated, unknown = [], [], [], []
    for fact in declared:
        known = [one for one in reported.facts if _is_on(one, fact) and _is_comparable(one, fact)]
        if not known:
            unknown.append(fact)
            continue
        other = next((one for one in known if not _agree(fact, one)), None)
        compared = ComparedFact(declared=fact, reported=other or known[0])
        if other is None:
            agreeing.append(compared)
        elif fact.fails:
            failing.append(compared)
        else:
            tolerated.append(compared)
    return Verification(
        agreeing=tuple(agreeing),
        failing=tuple(failing),
        tolerated=tuple(tolerated),
        unknown=tuple(unknown),
        faults=reported.faults,
    )


def _is_on(reported: ReportedFact, declared: DeclaredFact) -> bool:
    return (reported.topic, reported.subject) == (declared.topic, declared.subject)


def _is_comparable(reported: ReportedFact, declared: DeclaredFact) -> bool:
    numbers = reported.number is not None and _has_range(declared)
    return numbers or bool(reported.words and declared.words)


def _has_range(declared: DeclaredFact) -> bool:
    return declared.least is not None or declared.most is not None


def _agree(declared: DeclaredFact, reported: ReportedFact) -> bool:
    if not set(declared.words).isdisjoint(reported.words):
        return True
    number = reported.number
    if number is None or not _has_range(declared):
        return False
    enough = declared.least is None or number >= declared.least or reported.is_all
    return enough and (declared.most is None or number <= declared.most)


LOCKED_SHARE: Final = 0.5
"""Share of a model's resident file that counts as locked: an engine that may lock locks all of
it."""
REFUSED_BYTES: Final = 8 << 20
"""Bytes that systemd lets an engine lock by default (LimitMEMLOCK of systemd.exec(5)): after a
refusal no more are locked."""


def misplaced(applied: Applied, box: BoxFacts) -> str | None:
    """Return why a model that answers is not on its GPUs; None: it is, or that is not known."""
    gpus = applied.gpus
    if not gpus or not box.gpu_holders or set(box.gpu_holders) != set(box.gpu_total_bytes):
        return None
    unit = unit_of(applied.name)
    on = {i for i, holders in box.gpu_holders.items() if any(h.unit == unit for h in holders)}
    if on and (gpus == "all" or on <= set(gpus)):
        return None
    where = "runs on the CPU, on no GPU"
    if on:
        where = f"runs on GPU {min(on - set(gpus))}, which its profile does not list"
    return f"{applied.name} answers, but it {where}"


def unlocked(applied: Applied, group: GroupMemory | None, *, model_bytes: int | None) -> str | None:
    """Return why a model that must be locked in memory is not; None: it is, or that is not known.

    Args:
        applied: The profile.
        group: What its processes have; None: not known.
        model_bytes: Size of the model's file; None: not known.
    """
    if not applied.locks_memory or group is None or not group.resident_bytes:
        return None
    # With GPUs only a part of the file stays in main memory, and that part is not known.
    weights = (
        None if applied.gpus or model_bytes is None else min(model_bytes, group.resident_bytes)
    )
    if weights is None:
        refused = group.locked_bytes <= REFUSED_BYTES < group.resident_bytes
    else:
        refused = group.locked_bytes < weights * LOCKED_SHARE
    if not refused:
        return None
    whole = group.resident_bytes if weights is None else weights
    return (
        f"{applied.name} answers, but its memory is not locked"
        f" ({size_of_total(group.locked_bytes, whole)}):"
        " LimitMEMLOCK of its unit is too low, or mlock was refused"
    )
