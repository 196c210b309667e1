"""Differences between what the appliance knows of an engine's options and what a release of it has.

An option that is typed, refused or written has to be in the release, under the very spelling. Those of other
builds are declared where they are typed or refused (`Flag.former`, `Flag.since`, `ArgumentRules.former`,
`ArgumentRules.since`), and have to be missing: so neither list keeps what is no longer true.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from appliance.engines import ENGINES
from appliance.engines.shared.engine import Engine
from appliance.engines.shared.invocation import InvocationContext
from appliance.engines.shared.refused_arguments import ArgumentRules
from appliance.model.engine_build import EngineBuild, lacks
from appliance.model.spec import Profile
from appliance.model.wording import closest
from tests.engine_options.recording import RecordedRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Option or variable on which the appliance and a release differ."""

    name: str
    owner: str
    """Part of the appliance that knows the name."""
    text: str
    """Nearest name in the release, or the reason why one that is there should not be."""

    def __str__(self) -> str:
        return f"{self.name} ({self.owner}): {self.text}"


def differences(release: RecordedRelease, profiles: Iterable[Profile]) -> tuple[Difference, ...]:
    """Return all differences of an engine, each name of an owner once.

    Args:
        release: What the engine has.
        profiles: Profiles that are written as command lines; those of other engines are left out.
    """
    engine = ENGINES[release.engine]
    own = [one for one in profiles if one.engine == engine.name]
    found = (
        *_typed(engine, release),
        *_refused(engine, release),
        *_opposites(engine, release),
        *_written(engine, release, own),
        *_variables(engine, release, own),
    )
    return tuple({(one.name, one.owner): one for one in found}.values())


def known_options(engine: Engine) -> int:
    """Count the spellings, refusals and families that the appliance knows of an engine."""
    rules = engine.arguments
    refused = 0 if rules is None else len({*rules.refused, *rules.families})
    keys = {} if rules is None else rules.keys
    return len({*engine.option_table.keys, *keys}) + refused


def is_newer(build: str, than: str) -> bool:
    """Tell whether a build came after another: ``b11549`` after ``b11434``, ``0.33`` after ``0.32.1``."""
    return _numbers(build) > _numbers(than)


def _numbers(build: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", build)))


def _has(release: RecordedRelease, name: str, rules: ArgumentRules | None) -> bool:
    """Tell whether a release has a spelling; with argparse the only beginning of one is another."""
    if name in release.options or rules is None or not rules.argparse:
        return name in release.options
    return name.startswith("--") and sum(one.startswith(name) for one in release.options) == 1


def _typed(engine: Engine, release: RecordedRelease) -> Iterator[Difference]:
    for option in engine.option_table.options:
        flag, owner = option.flag, f"key {option.shown}"
        for name in flag.former:
            yield from _though(release, name, owner, "only older builds")
        current = (*flag.names, *flag.contrary)
        lacking = [name for name in current if not _has(release, name, engine.arguments)]
        if not is_newer(flag.since, release.build):
            yield from (_missing(release, name, owner) for name in lacking)
        elif not lacking:
            yield from _though(release, current[0], owner, f"builds from {flag.since} on alone")


def _refused(engine: Engine, release: RecordedRelease) -> Iterator[Difference]:
    rules = engine.arguments
    if rules is None:
        return
    typed = engine.option_table.keys
    names = (*rules.refused, *(name for name in rules.keys if name not in typed), *rules.families)
    for name in names:
        is_family = name in rules.families
        there = (
            any(one.startswith(name) for one in release.options)
            if is_family
            else _has(release, name, rules)
        )
        owner = "refused family" if is_family else "refused"
        since = rules.since.get(name, "")
        is_other = name in rules.former or is_newer(since, release.build)
        if not there and not is_other:
            yield _missing(release, name, owner)
        if there and is_other:
            yield from _though(release, name, owner, since or "only older builds", is_there=True)


def _opposites(engine: Engine, release: RecordedRelease) -> Iterator[Difference]:
    """Find options that say the opposite of a key, and that ``extra_args`` may give beside it."""
    rules = engine.arguments
    if rules is None:
        return
    for name in sorted(release.options):
        for key in _opposites_of(name):
            if (shown := rules.keys.get(key)) is not None and rules.refusal(name) is None:
                text = f"it says the opposite of {key}, and the key does not own it"
                yield Difference(name=name, owner=f"key {shown}", text=text)


def _opposites_of(name: str) -> Iterator[str]:
    pairs = (("--no-", "--"), ("--disable-", "--enable-"), ("--enable-", "--disable-"))
    yield from (other + name.removeprefix(a) for a, other in pairs if name.startswith(a))


def _written(
    engine: Engine, release: RecordedRelease, profiles: Sequence[Profile]
) -> Iterator[Difference]:
    options: dict[str, tuple[str, ...] | None] = dict.fromkeys(release.options, ())
    build = EngineBuild(options=options, is_complete=False)
    for profile in profiles:
        given = profile.extra_args
        for lack in lacks(engine.invocation(profile, InvocationContext()).argv, build):
            typed = engine.option_table.named(lack.option)
            is_other = typed is not None and is_newer(typed.flag.since, release.build)
            if lack.option not in given and not is_other:
                yield _missing(release, lack.option, f"written for {profile.name}")


def _variables(
    engine: Engine, release: RecordedRelease, profiles: Sequence[Profile]
) -> Iterator[Difference]:
    """Find variables of the engine's own that its sources do not name."""
    if not release.variables:
        return
    prefixes = tuple({name.partition("_")[0] + "_" for name in engine.refused_variables})
    former = engine.former_variables
    refused = [n for n in engine.refused_variables if n not in {*release.variables, *former}]
    families = [
        one
        for one in engine.refused_variable_families
        if one not in former and not any(name.startswith(one) for name in release.variables)
    ]
    written = {
        name
        for profile in profiles
        for name in engine.invocation(profile, InvocationContext()).environment
        if name.startswith(prefixes) and name not in {*release.variables, *profile.env}
    }
    for owner, names in (("refused", refused), ("refused family", families), ("written", written)):
        for name in names:
            near = closest(name, sorted(release.variables))
            yield Difference(name=name, owner=f"{owner} variable", text=_nearest(near))


def _missing(release: RecordedRelease, name: str, owner: str) -> Difference:
    near = closest(name, sorted(release.options))
    return Difference(name=name, owner=owner, text=_nearest(near))


def _nearest(near: str | None) -> str:
    return "it is not there" if near is None else f"it is not there; the nearest is {near}"


def _though(
    release: RecordedRelease, name: str, owner: str, builds: str, *, is_there: bool = False
) -> Iterator[Difference]:
    if is_there or name in release.options:
        yield Difference(name=name, owner=owner, text=f"it is there, though declared of {builds}")
