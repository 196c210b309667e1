"""Type of a trap, and the facts that it is a function of.

A trap has two parts. `Trap.finds` looks at the profile and its model, and says what in it is the trap. Where
that alone is none, `Trap.on_gpus` looks at the GPUs, and says which of them make it one. So GPUs are read only if the
first part has found something, and where they cannot be read the report names these traps as not checked. A trap of
some builds of an engine holds for a `BuildRange`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.model.engine_build import EngineBuild
from appliance.model.gpus import GpuHardware
from appliance.model.memory import DeviceMemory
from appliance.model.model_headers import ModelTraits
from appliance.model.profile import Applied
from appliance.model.spec import EngineOptions, Profile
from appliance.model.trap_names import TrapName
from appliance.switch.need import used_gpus

BuildKey = tuple[int, ...]
"""Numbers of a version, in their order: (11549,) for b11549, (0, 33, 0) for 0.33.0."""

_COUNTED: Final = re.compile(r"\Ab?([0-9]{3,9})(?![.0-9])", re.ASCII)
"""Number of a build of llama.cpp; a build without the history of the sources is number 0 or 1, which says nothing."""
_DOTTED: Final = re.compile(r"\Av?([0-9]{1,9}(?:\.[0-9]{1,9}){1,5})", re.ASCII)


def build_key(version: str) -> BuildKey | None:
    """Return the numbers of a version as its program prints it; None: it has none.

    llama.cpp counts its builds: ``b9596 (18ef86ece)``.
    vLLM and SGLang have versions such as ``0.33.0``.
    """
    if counted := _COUNTED.search(version):
        return (int(counted[1]),)
    dotted = _DOTTED.search(version)
    return None if dotted is None else tuple(map(int, dotted[1].split(".")))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRange:
    """Builds from `since` on and before `until`, in the engine's own spelling; empty: no limit."""

    since: str = ""
    until: str = ""

    def holds(self, build: EngineBuild | None) -> bool | None:
        """Tell whether a build is in the range; None: the build is not known."""
        if not self.since and not self.until:
            return True
        key = None if build is None else build_key(build.version)
        if key is None:
            return None
        since, until = build_key(self.since), build_key(self.until)
        return (since is None or key >= since) and (until is None or key < until)

    @property
    def text(self) -> str:
        """Return the range for people."""
        if self.since and self.until:
            return f"builds from {self.since} until before {self.until}"
        if self.until:
            return f"builds before {self.until}"
        return f"builds from {self.since}" if self.since else "all builds"


ALL_BUILDS: Final = BuildRange()


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFacts:
    """Facts about one profile that its traps are found in."""

    profile: Profile
    applied: Applied
    """The profile, compiled."""
    traits: ModelTraits | None = None
    """Traits of its model; None: the model's headers were not read."""
    build: EngineBuild | None = None
    """Build of its engine; None: not known."""
    ram_bytes: int | None = None
    """Main memory of the box; None: not known."""
    missing_units: tuple[str, ...] = ()
    """Units that the profile names and systemd does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """GPUs of the box."""

    memory: tuple[DeviceMemory, ...]
    """Memory of all of them, those that do not work included."""
    hardware: tuple[GpuHardware, ...]
    """Kinds of those that work."""

    def used_by(self, applied: Applied) -> tuple[GpuHardware, ...]:
        """Return the kinds of the GPUs that a profile uses, as far as they work."""
        used = used_gpus(applied, [gpu.index for gpu in self.hardware])
        return tuple(gpu for gpu in self.hardware if gpu.index in used)


Finds = Callable[[LintFacts], str | None]
"""Function that returns what in a profile is the trap, as a phrase; None: nothing."""
FindsOnGpus = Callable[[LintFacts, GpuFacts], str | None]
"""Function that returns what of the GPUs makes it a trap, as a phrase; None: nothing."""
ANY_ENGINE: Final = (EngineOptions,)
_CONSUMER_BLACKWELL: Final = 12
"""Major compute capability of GeForce RTX 50 and RTX PRO Blackwell (SM 120, 121)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """Trap of a profile."""

    name: TrapName
    statement: str
    """Consequence, as a clause."""
    keys: tuple[str, ...]
    """Keys of a profile that make the trap, first the one to change."""
    advice: str
    """Change that ends it, as an imperative."""
    source: str
    """Where it is known from."""
    checked: str
    """Day on which the source was last looked at, ISO 8601."""
    options: tuple[type[EngineOptions], ...] = ANY_ENGINE
    """Types of engines' options: the trap is for each engine whose options are of one of them, also by
    inheritance, so that another fork of llama.cpp has the traps of llama.cpp."""
    builds: BuildRange = ALL_BUILDS
    """Builds of the engine for which it holds."""
    finds: Finds
    on_gpus: FindsOnGpus | None = None
    """None: the trap is one on all GPUs, and without any."""


def _gpu_phrase(gpus: Sequence[GpuHardware]) -> str | None:
    """Return the phrase that names the first of some GPUs; None: there is none."""
    for gpu in gpus:
        kind = f", compute capability {gpu.capability_text}" if gpu.compute_capability else ""
        return f"GPU {gpu.index} is {gpu.name or 'without a name'}{kind}"
    return None


def on_capability(fits: Callable[[tuple[int, int]], bool]) -> FindsOnGpus:
    """Return the function that names the first GPU of a profile whose compute capability fits."""

    def found(facts: LintFacts, gpus: GpuFacts) -> str | None:
        return _gpu_phrase(
            [
                gpu
                for gpu in gpus.used_by(facts.applied)
                if gpu.compute_capability is not None and fits(gpu.compute_capability)
            ]
        )

    return found


def is_consumer_blackwell(capability: tuple[int, int]) -> bool:
    """Tell whether a compute capability is that of a Blackwell card for desktops and workstations."""
    return capability[0] == _CONSUMER_BLACKWELL


FIELD: Final = "an operator's log of 100 experiments on two RTX 5060 Ti and a mini PC"
BENCHMARK: Final = "a benchmark on two RTX 3090 (sch0tten/local-llm-eval)"
