"""Facts that traps are found in: profiles as text, traits of models, GPUs that operators have."""

from collections.abc import Sequence
from pathlib import Path

from appliance.engines.shared.invocation import InvocationContext
from appliance.model.engine_build import EngineBuild
from appliance.model.gpus import GpuHardware
from appliance.model.memory import DeviceMemory, Holder
from appliance.model.model_headers import LookAtModel, ModelTraits
from appliance.model.spec import Profile
from appliance.profiles.compilation import ProfileSource, spec_of, unseen
from appliance.profiles.linting.lint import Lint, lint, profile_traps
from appliance.profiles.linting.trap import GpuFacts, LintFacts
from appliance.switch.units.backend_unit import UnitSpec
from appliance.system.profile_files.loading import load_profile, parse_profile
from tests.fakes.profile_texts import MINIMAL

GIB = 1 << 30
RTX_3090 = ("NVIDIA GeForce RTX 3090", (8, 6), 24, 4)
RTX_4090 = ("NVIDIA GeForce RTX 4090", (8, 9), 24, 0)
RTX_5060_TI = ("NVIDIA GeForce RTX 5060 Ti", (12, 0), 16, 0)
UNTOLD = ("AMD Radeon", None, 24, None)
"""Card whose driver tells no compute capability."""


def gpus(*cards: tuple[str, tuple[int, int] | None, int, int | None]) -> GpuFacts:
    """GPUs that other programs use too: name, compute capability, size in GiB and NVLinks of each."""
    return GpuFacts(
        memory=tuple(
            DeviceMemory(
                index=index,
                uuid=f"GPU-{index}",
                name=name,
                total_bytes=size * GIB,
                free_bytes=GIB,
                used_bytes=(size - 1) * GIB - (300 << 20),
                reserved_bytes=300 << 20,
                holders=(Holder(pid=1, held_bytes=GIB, comm="python3", user="ana", unit=""),),
            )
            for index, (name, _, size, _) in enumerate(cards)
        ),
        hardware=tuple(
            GpuHardware(index=index, name=name, compute_capability=capability, nvlinks=links)
            for index, (name, capability, _, links) in enumerate(cards)
        ),
    )


def profile_of(engine: str, keys: str = "", table: str = "", binary: str = "") -> Profile:
    """A profile of an engine with these keys, these in the engine's table, and this program."""
    lines = [keys, *MINIMAL[engine].splitlines()]
    if binary:
        lines = [line for line in lines if not line.startswith("binary")]
        lines.insert(0, f'binary = "{binary}"')
    if table:
        lines += [f"[{engine}]", table]
    return parse_profile("p", "\n".join(lines).encode())


def spec_of_profile(engine: str, keys: str = "", table: str = "", *, binary: str = "") -> UnitSpec:
    """The spec of the unit of such a profile."""
    return _spec(profile_of(engine, keys, table, binary))


def _spec(profile: Profile, look: LookAtModel = unseen) -> UnitSpec:
    source = ProfileSource(path=f"/etc/appliance/profiles/{profile.name}.toml", sha256="0" * 64)
    return spec_of(profile, source, InvocationContext(), look=look)


def facts(
    engine: str,
    keys: str = "",
    table: str = "",
    *,
    traits: ModelTraits | None = None,
    version: str | None = None,
    ram_gib: int | None = None,
    missing_units: tuple[str, ...] = (),
    look: LookAtModel = unseen,
    binary: str = "",
) -> LintFacts:
    """Facts about a profile; `version`: of its engine, None: not known."""
    spec = _spec(profile_of(engine, keys, table, binary), look)
    return LintFacts(
        profile=spec.profile,
        applied=spec.applied,
        traits=spec.traits if traits is None else traits,
        build=None if version is None else EngineBuild(version=version),
        ram_bytes=None if ram_gib is None else ram_gib * GIB,
        missing_units=missing_units,
    )


def profile_facts(
    profile: Profile, *, traits: ModelTraits | None = None, ram_gib: int | None = None
) -> LintFacts:
    """Facts about a profile whose model has these traits."""
    return LintFacts(
        profile=profile,
        applied=_spec(profile).applied,
        traits=traits,
        ram_bytes=None if ram_gib is None else ram_gib * GIB,
    )


def shipped(
    path: Path, *, traits: ModelTraits | None = None, ram_gib: int | None = None
) -> LintFacts:
    """Facts about a profile in a file."""
    return profile_facts(load_profile(path), traits=traits, ram_gib=ram_gib)


def linted(found_in: LintFacts, on: GpuFacts | None = None) -> Lint:
    """The lint of a profile; `on`: GPUs, None: they cannot be read."""
    return lint(found_in, tuple(profile_traps(found_in)), on)


def names(found: Lint) -> Sequence[str]:
    """Names of the traps, in the order of the table."""
    return [str(one.trap.name) for one in found.sprung]
