"""Lint of one profile: the traps that it has, those that it allows, and those that could not be checked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from appliance.engines import ENGINES
from appliance.model.engine_build import EngineBuild
from appliance.model.spec import Profile
from appliance.model.trap_names import TrapName
from appliance.model.wording import joined, printable
from appliance.profiles.linting.trap import GpuFacts, LintFacts, Trap
from appliance.profiles.linting.traps import RETIRED, TRAPS

_MOST_DETAIL: Final = 300
"""Longest phrase that tells what in a profile is the trap, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SprungTrap:
    """Trap that a profile has."""

    trap: Trap
    detail: str
    """Phrase that tells what in the profile, its model or the GPUs is the trap."""
    is_certain: bool
    """Whether the engine's build is known to be one for which the trap holds, or all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """Lint of one profile."""

    sprung: tuple[SprungTrap, ...] = ()
    """Traps that the profile has, without those that it allows."""
    allowed: tuple[TrapName, ...] = ()
    """Traps that it has and names in ``allow_traps``."""
    unchecked: tuple[TrapName, ...] = ()
    """Traps that it has on some GPUs, where GPUs could not be read."""
    notes: tuple[str, ...] = ()
    """Sentences about names in ``allow_traps`` that mean nothing any more."""


@cache
def _traps_of(engine: str) -> tuple[Trap, ...]:
    """Return the traps of profiles with an engine."""
    return tuple(trap for trap in TRAPS if issubclass(ENGINES[engine].options, trap.options))


def profile_traps(facts: LintFacts) -> Iterator[SprungTrap]:
    """Yield the traps in a profile and its model, as far as no GPU is looked at."""
    for trap in _traps_of(facts.profile.engine):
        holds = trap.builds.holds(facts.build)
        if holds is False:
            continue
        detail = trap.finds(facts)
        if detail is not None:
            yield SprungTrap(trap=trap, detail=_cut(detail), is_certain=holds is True)


def needs_gpus(found: Iterable[SprungTrap]) -> bool:
    """Tell whether GPUs decide about one of these traps."""
    return any(one.trap.on_gpus is not None for one in found)


def lint(
    facts: LintFacts,
    found: Sequence[SprungTrap],
    gpus: GpuFacts | None,
    retired: Mapping[TrapName, str] = RETIRED,
) -> Lint:
    """Return the lint of a profile.

    Args:
        facts: About the profile.
        found: What `profile_traps` has found in it.
        gpus: GPUs of the box; None: they cannot be read, or nobody has to.
        retired: Traps that are gone, each with the reason.
    """
    allowed = set(facts.profile.allow_traps)
    unchecked: tuple[SprungTrap, ...] = ()
    if gpus is None:
        unchecked = tuple(one for one in found if one.trap.on_gpus is not None)
        found = [one for one in found if one.trap.on_gpus is None]
    else:
        found = [there for one in found if (there := _on_gpus(one, facts, gpus)) is not None]
    return Lint(
        sprung=tuple(one for one in found if one.trap.name not in allowed),
        allowed=tuple(one.trap.name for one in found if one.trap.name in allowed),
        unchecked=tuple(one.trap.name for one in unchecked if one.trap.name not in allowed),
        notes=tuple(_notes(facts.profile, retired)),
    )


def _on_gpus(one: SprungTrap, facts: LintFacts, gpus: GpuFacts) -> SprungTrap | None:
    """Return a trap with what the GPUs add to it; None: on these GPUs it is none."""
    if one.trap.on_gpus is None:
        return one
    where = one.trap.on_gpus(facts, gpus)
    if where is None:
        return None
    detail = ", ".join(filter(None, (one.detail, _cut(where))))
    return SprungTrap(trap=one.trap, detail=detail, is_certain=one.is_certain)


def _notes(profile: Profile, retired: Mapping[TrapName, str]) -> Iterator[str]:
    for name in profile.allow_traps:
        if name in retired:
            yield f'allow_traps: "{name}" is a trap no more ({retired[name]}): remove it'


def _cut(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _MOST_DETAIL else f"{text[:_MOST_DETAIL]}…"


def warning_of(one: SprungTrap) -> str:
    """Return the sentence that warns of a trap, for `validate` and `apply`."""
    only = "" if one.is_certain else f" ({one.trap.builds.text})"
    return f"trap {one.trap.name}: {one.trap.statement}{only}; here {one.detail}: {one.trap.advice}"


def unchecked_sentence(names: Sequence[TrapName], reason: str) -> str:
    """Return the sentence about traps that only a look at the GPUs would tell."""
    return f"not checked: {joined(names)}: {reason}"


def known_version(build: EngineBuild | None) -> str | None:
    """Return the version of a build as its program tells it; None: not known."""
    return build.version if build is not None and build.version else None
