"""Profiles that a command line names, by name or as files, or all of the box: read, checked and compiled."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.install.profile_specs import (
    CompiledProfiles,
    context_of,
    layout_of,
    load_specs,
    renderable,
)
from appliance.model.errors import ProfileError, UnknownProfileError
from appliance.model.paths import BUILDS
from appliance.model.wording import no_such_profile
from appliance.profiles.compilation import spec_of
from appliance.settings.loader import load_settings
from appliance.settings.tables import Settings
from appliance.switch.units.backend_unit import Layout, UnitSpec, problem
from appliance.system.build_records import CurrentBuilds
from appliance.system.files.access import follow
from appliance.system.model_files.reading import read_adapter_ranks, read_model
from appliance.system.profile_files.loading import SUFFIX, load_profile, source_of
from appliance.system.systemd.systemctl import Systemctl


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Profile that was checked."""

    file: str
    spec: UnitSpec | None
    """Compiled profile; None: it has errors."""
    error: str = ""
    """Errors in complete lines; empty: none."""
    warnings: tuple[str, ...] = ()
    """Sentences about files that its engine would not find or could not open, and about traps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCheck:
    """Check of some profiles, with what they were checked against."""

    profiles: tuple[Checked, ...]
    installed: CompiledProfiles
    """Profiles of the box, also those that were not named."""
    layout: Layout
    settings: Settings

    @property
    def specs(self) -> list[UnitSpec]:
        """Return the profiles without errors."""
        return [one.spec for one in self.profiles if one.spec is not None]

    def builds(self) -> CurrentBuilds:
        """Return a reader of the builds of their engines."""
        return CurrentBuilds(str(self.settings.applied_dir / BUILDS))


def check_profiles(targets: Sequence[str]) -> ProfileCheck:
    """Check the profiles that `targets` name; all of the box for none.

    Raises:
        UnknownProfileError: one is not there.
    """
    settings = load_settings()
    layout = layout_of(settings, Systemctl().version())
    installed = renderable(load_specs(settings), layout)
    return ProfileCheck(
        profiles=tuple(_checked(targets, settings, installed, layout)),
        installed=installed,
        layout=layout,
        settings=settings,
    )


def _checked(
    targets: Sequence[str], settings: Settings, installed: CompiledProfiles, layout: Layout
) -> Iterator[Checked]:
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
            ranks_of=read_adapter_ranks,
            follow=follow,
        )
    except ProfileError as error:
        return Checked(file=str(path), spec=None, error=str(error))
    wrong = problem(spec, layout)
    return Checked(file=str(path), spec=None if wrong else spec, error=wrong or "")
