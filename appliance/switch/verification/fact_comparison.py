"""Comparison of what a profile declares with what its engine reports.

Each declared fact is in one of three states: the engine reports the same, it reports something else, or
it reports nothing about it. A value that cannot be compared, such as a word where the profile
declares a number, counts as nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.model.running_facts import DeclaredFact, ReportedFact, SelfDescription


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
    """Mismatches that are told: the profile allows them, or they change no promise of it."""
    unknown: tuple[DeclaredFact, ...] = ()
    """Facts on which the engine reports nothing."""
    faults: tuple[str, ...] = ()
    """Sentences on what could not be asked or understood."""

    @property
    def mismatches(self) -> tuple[ComparedFact, ...]:
        """Return all mismatches, those that fail an operation first."""
        return self.failing + self.tolerated


def compare(declared: Sequence[DeclaredFact], told: SelfDescription) -> Verification:
    """Return how a profile's facts compare with what its engine tells about itself.

    Of several sources on one fact, each has to agree.
    """
    agreeing, failing, tolerated, unknown = [], [], [], []
    for fact in declared:
        known = [one for one in told.facts if _is_on(one, fact) and _is_comparable(one, fact)]
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
        faults=told.faults,
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
