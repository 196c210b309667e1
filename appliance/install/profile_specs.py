"""Profiles of a box, loaded and compiled to the specs of their units."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from appliance import __version__
from appliance.engines.shared.invocation import InvocationContext
from appliance.model.errors import StoreError
from appliance.model.paths import BUILDS, CACHE_DIR
from appliance.model.profile import Catalogue
from appliance.profiles.compilation import spec_of
from appliance.settings.tables import Settings
from appliance.switch.units.backend_unit import Layout, UnitSpec, problem
from appliance.system.applied.manifest import read_manifest
from appliance.system.files.access import follow
from appliance.system.model_files.reading import read_adapter_ranks, read_model
from appliance.system.profile_files.loading import load_profiles

_MOST_THREADS: Final = 8
"""Most threads of an embedded engine: more do not speed up a small model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledProfiles:
    """Compiled profiles, and the errors of those that cannot be compiled."""

    specs: tuple[UnitSpec, ...]
    errors: Mapping[str, str] = field(default_factory=dict)
    """Messages by profile name (the stem of the file)."""


def load_specs(settings: Settings) -> CompiledProfiles:
    """Read and compile every profile. Raises `ProfileError` for an unreadable directory."""
    before = _applied_before(settings.applied_dir)
    found = load_profiles(settings.profiles_dir, settings.reserved_ports, before)
    context = context_of(settings)
    return CompiledProfiles(
        specs=tuple(
            spec_of(
                profile,
                found.sources[name],
                context,
                user=settings.backend_user,
                look=read_model,
                ranks_of=read_adapter_ranks,
                follow=follow,
            )
            for name, profile in found.profiles.items()
        ),
        errors={name: str(error) for name, error in found.errors.items()},
    )


def _applied_before(directory: Path) -> Catalogue:
    try:
        return read_manifest(directory)
    except StoreError:
        return {}


def renderable(loaded: CompiledProfiles, layout: Layout) -> CompiledProfiles:
    """Return `loaded` with profiles from which no unit can be made moved to the errors."""
    problems = {s.applied.name: text for s in loaded.specs if (text := problem(s, layout))}
    return CompiledProfiles(
        specs=tuple(s for s in loaded.specs if s.applied.name not in problems),
        errors=dict(loaded.errors) | problems,
    )


def context_of(settings: Settings) -> InvocationContext:
    """Return the facts of this box on which invocations of engines depend."""
    return InvocationContext(
        prefix=str(settings.prefix),
        cache_root=CACHE_DIR,
        hf_home=str(settings.hf_home),
        threads=min(os.cpu_count() or 1, _MOST_THREADS),
    )


def layout_of(settings: Settings, systemd: int) -> Layout:
    """Return the layout for which units are rendered; `systemd`: major version, 0 when unknown."""
    return Layout(
        prefix=str(settings.prefix),
        version=__version__,
        systemd=systemd,
        foreign_units=tuple(settings.foreign_units),
        margin_bytes=settings.memory.margin,
        lease_dir=str(settings.lease_dir),
        gate_dir=str(settings.gate_dir),
        needs_dir=str(settings.needs_dir),
        builds_dir=str(settings.applied_dir / BUILDS),
    )
