"""Specifications of units, made from profiles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from appliance.domain.model_headers import LookAtModel
from appliance.domain.profile import Applied
from appliance.domain.spec import Profile
from appliance.engines import ENGINES
from appliance.engines.shared.engine import InvocationContext
from appliance.planning.profiles.compilation import ProfileSource, compile_applied, unseen
from appliance.planning.units.commands import UnitSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Targets of the paths of an invocation, links followed."""

    files: tuple[str, ...] = ()
    """Further files that the engine reads."""
    places: tuple[str, ...] = ()
    """Targets of links on the way to the model and to `files`."""
    programs: tuple[str, ...] = ()


Follow = Callable[[Applied, Sequence[str], Sequence[str]], Reached]
"""Function that follows the links of a profile's model, arguments and further programs; never
raises."""


def unfollowed(_applied: Applied, _words: Sequence[str], _programs: Sequence[str]) -> Reached:
    """Report no links: `Follow` for callers without a file system."""
    return Reached()


def spec_of(
    profile: Profile,
    source: ProfileSource,
    context: InvocationContext,
    *,
    user: str | None = None,
    look: LookAtModel = unseen,
    follow: Follow = unfollowed,
) -> UnitSpec:
    """Return the specification of the unit of `profile`.

    Args:
        profile: A valid one.
        source: Its file.
        context: The box.
        user: Who runs backends whose profile names nobody; None: each has a user of its own.
        look: Reads the headers of its model.
        follow: Finds where the paths of an invocation lead to.
    """
    invocation = ENGINES[profile.engine].invocation(profile, context)
    compiled = compile_applied(profile, source, invocation, context.hf_home, look)
    applied = replace(compiled, user=profile.user or user or "")
    reached = follow(
        applied, invocation.argv[1:], profile.patch.command[:1] if profile.patch else ()
    )
    return UnitSpec(
        profile=profile,
        applied=replace(
            applied,
            files=reached.files,
            places=reached.places,
            programs=reached.programs,
        ),
        invocation=invocation,
    )
