"""Lint of a box's profiles, and warnings about what would keep their engines from starting.

The facts of a profile's traps are read as far as a trap needs them. Headers of models were read when the profiles were compiled. The GPUs are asked once, for all profiles
together, and only if one has a trap that depends on them, through a child process that may hang.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from appliance.model.engine_build import EngineBuild
from appliance.model.errors import ApplianceError
from appliance.model.gpus import GpuHardware
from appliance.model.profile import Applied, Catalogue
from appliance.model.spec import Profile
from appliance.profiles.linting.lint import (
    Lint,
    SprungTrap,
    lint,
    needs_gpus,
    profile_traps,
    warning_of,
)
from appliance.profiles.linting.trap import GpuFacts, LintFacts
from appliance.switch.engine_findings import build_findings, file_findings, unasked_sentence
from appliance.switch.preflight_facts import (
    Level,
    PreflightFinding,
    Presence,
    ProfileFacts,
    warn,
)
from appliance.switch.units.backend_unit import UnitSpec
from appliance.system.build_records import CurrentBuilds
from appliance.system.files.access import (
    draft_presence,
    engine_presence,
    missing_adapters,
    model_presence,
    read_access,
)
from appliance.system.kernel.usage import read_host_memory
from appliance.system.model_files.reading import ModelChecks, read_adapter_ranks
from appliance.system.systemd.unit_files import lacks_file

_PATIENCE_S: Final = 3.0
"""Time for the answer about the GPUs. Without persistence mode a driver may need longer; then the traps that
depend on GPUs are told as not checked."""
_ORDERING: Final = frozenset({"Unit.After", "Unit.Wants"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareLook:
    """Look at the GPUs for a lint."""

    gpus: GpuFacts | None = None
    """None: they cannot be read, or no profile has a trap that depends on them."""
    problem: str = ""
    """Reason why they cannot be read, as a sentence; empty: they were read, or nobody had to."""

    @property
    def hardware(self) -> tuple[GpuHardware, ...]:
        """Return the kinds of the GPUs that were read."""
        return () if self.gpus is None else self.gpus.hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """Lint of some profiles."""

    lints: Mapping[str, Lint]
    """Lints by the paths of the profiles' files: a file may be linted that has the name of another profile."""
    builds: Mapping[str, EngineBuild | None]
    """Builds of the profiles' engines, as far as they are known, by the same paths."""
    options: Mapping[str, tuple[PreflightFinding, ...]] = field(default_factory=dict)
    """Findings of a switch against the options of each command, as far as builds are known; by the same
    paths."""
    look: HardwareLook = field(default_factory=HardwareLook)

    @property
    def is_clean(self) -> bool:
        """Tell whether no profile has a trap, and none an option that a switch would refuse."""
        found = (one for findings in self.options.values() for one in findings)
        sprung = any(lint.sprung for lint in self.lints.values())
        return not sprung and all(one.level is not Level.REFUSE for one in found)


def look_at_gpus() -> HardwareLook:
    """Read the GPUs; never raises, and never takes longer than some seconds."""
    # Imported late: half of what this module costs an apply, and only a trap of GPUs needs it.
    from appliance.system.gpus.reader import GpuReader  # noqa: PLC0415

    reader = GpuReader()
    try:
        found = reader.read_hardware(timeout_s=_PATIENCE_S)
    finally:
        reader.close()
    if not found.hardware:
        return HardwareLook(problem=found.memory.reason or "there is no GPU")
    return HardwareLook(gpus=GpuFacts(memory=tuple(found.memory.devices), hardware=found.hardware))


def lint_profiles(
    specs: Iterable[UnitSpec], builds: CurrentBuilds, *, root: str = "/"
) -> LintReport:
    """Return the lint of profiles that were compiled a moment ago.

    Args:
        specs: The profiles.
        builds: Builds of their engines.
        root: Directory above ``proc``; another one in tests.
    """
    ram_bytes = _ram_bytes(root)
    facts: dict[str, LintFacts] = {}
    found: dict[str, tuple[SprungTrap, ...]] = {}
    for spec in specs:
        path = spec.applied.source_path
        facts[path] = LintFacts(
            profile=spec.profile,
            applied=spec.applied,
            traits=spec.traits,
            build=builds.of(spec.applied),
            ram_bytes=ram_bytes,
            missing_units=tuple(filter(lacks_file, _named_units(spec.profile))),
        )
        found[path] = tuple(profile_traps(facts[path]))
    look = look_at_gpus() if any(map(needs_gpus, found.values())) else HardwareLook()
    return LintReport(
        lints={path: lint(facts[path], found[path], look.gpus) for path in facts},
        builds={path: one.build for path, one in facts.items()},
        options={path: option_warnings(one.applied, one.build) for path, one in facts.items()},
        look=look,
    )


def option_warnings(applied: Applied, build: EngineBuild | None) -> tuple[PreflightFinding, ...]:
    """Return the findings of a switch on the options of a command, and whether they were looked at."""
    found = [one for one in build_findings(applied, build) if one.level is not Level.OK]
    unasked = unasked_options(applied, build)
    return (*found, *([warn(unasked)] if unasked else ()))


def unasked_options(applied: Applied, build: EngineBuild | None) -> str:
    """Return that nobody has compared the options of a profile; empty: they were, or its program is missing."""
    is_there = os.access(applied.binary, os.F_OK)
    return unasked_sentence(applied, build) if is_there else ""


def trap_warnings(
    specs: Sequence[UnitSpec], builds: CurrentBuilds
) -> Mapping[str, tuple[str, ...]]:
    """Return a sentence for each trap of profiles that were compiled a moment ago, by their files' paths."""
    lints = lint_profiles(specs, builds).lints
    names = {spec.applied.source_path: spec.applied.name for spec in specs}
    return {
        path: (
            *(f"{names[path]}: {warning_of(one)}" for one in found.sprung),
            *(f"{names[path]}: {note}" for note in found.notes),
        )
        for path, found in sorted(lints.items(), key=lambda item: names[item[0]])
    }


def _ram_bytes(root: str) -> int | None:
    try:
        return read_host_memory(root).total_bytes
    except ApplianceError:
        return None


def _named_units(profile: Profile) -> Iterable[str]:
    """Return the units of others that a profile names, each once."""
    values = (value for one in profile.unit if one.name in _ORDERING for value in one.values)
    named = (unit for value in values for unit in value.split())
    return dict.fromkeys((*profile.order.after, *named))


def start_warnings(catalogue: Catalogue, unit_dir: Path, builds: CurrentBuilds) -> Iterator[str]:
    """Yield a sentence for each file that an engine could not open now, and each option that it lacks.

    Args:
        catalogue: Profiles, compiled a moment ago.
        unit_dir: Directory of their units, which show some files to engines and hide others.
        builds: Builds of their engines.
    """
    models = ModelChecks()
    for name, applied in sorted(catalogue.items()):
        for finding in (
            *file_findings(applied, _file_facts(applied, models, unit_dir)),
            *build_findings(applied, builds.of(applied)),
        ):
            if finding.level is not Level.OK:
                yield f"{name}: {finding.text}"


def _file_facts(applied: Applied, models: ModelChecks, unit_dir: Path) -> ProfileFacts:
    # The headers of an estimated model were read and found whole when the profile was compiled.
    is_whole = applied.estimate is not None
    model, problem = (Presence.PRESENT, "") if is_whole else model_presence(applied, models)
    return ProfileFacts(
        model=model,
        model_problem=problem,
        draft=draft_presence(applied),
        missing_adapters=missing_adapters(applied),
        adapter_ranks=read_adapter_ranks([adapter.path for adapter in applied.adapters]),
        engine=engine_presence(applied),
        access=read_access(applied, unit_dir),
    )
