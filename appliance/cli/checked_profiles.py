"""Profiles that a command line names, by name or as files, or all of the box: read, checked and compiled."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.adapters.files.access import follow
from appliance.adapters.model_files.reading import read_model
from appliance.adapters.profile_files.loading import SUFFIX, load_profile, source_of
from appliance.domain.errors import ProfileError, UnknownProfileError
from appliance.install.profile_specs import CompiledProfiles, context_of
from appliance.planning.units.backend_unit import problem
from appliance.planning.units.specs import Layout, UnitSpec, spec_of
from appliance.planning.wording import no_such_profile
from appliance.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Profile that was checked."""

    file: str
    spec: UnitSpec | None
    """Parsed profile; None: it has errors."""
    error: str = ""
    """Errors in complete lines; empty: none."""
    warnings: tuple[str, ...] = ()
    """Sentences about files that its engine would not find or could not open, and about traps."""


def checked_profiles(
    targets: Sequence[str], settings: Settings, installed: CompiledProfiles, layout: Layout
) -> Iterator[Checked]:
    """Yield the profiles that `targets` name; all of the box for none.

    Raises:
        UnknownProfileError: one is not there.
    """
    specs = {spec.applied.name: spec for spec in installed.specs}
    for target in targets or sorted({*specs, *installed.errors}):
        if target.endswith(SUFFIX) or "/" in target:
            yield _file(Path(target), settings, layout)
        elif target in specs or target in installed.errors:
            yield Checked(
                file=f"{target}{SUFFIX}",
                spec=specs.get(target),
                error=installed.errors.get(target, ""),
            )
        else:
            known = {*specs, *installed.errors}
            raise UnknownProfileError(no_such_profile(target, known))


def _file(path: Path, settings: Settings, layout: Layout) -> Checked:
    """Check a file by itself, wherever it is: another profile's port is no error."""
    try:
        profile = load_profile(path)
        source = source_of(path.absolute(), hashlib.sha256(path.read_bytes()).hexdigest())
        spec = spec_of(
            profile,
            source,
            context_of(settings),
            user=settings.backend_user,
            look=read_model,
            follow=follow,
        )
    except ProfileError as error:
        return Checked(file=str(path), spec=None, error=str(error))
    return Checked(file=str(path), spec=spec, error=problem(spec, layout) or "")
