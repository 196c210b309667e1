"""Lint of one profile: the traps that it has, those that it allows, and those that could not be checked.

`TRAPS` is the table of all traps, by the modules of their engines. `PREVENTED` are traps of engines that no profile
can have, because of what the appliance renders or refuses: the reference names them, and a test ties each to the
rendered command or unit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from appliance.engines import ENGINES
from appliance.model.engine_build import EngineBuild
from appliance.model.spec import Profile
from appliance.model.trap_names import TrapName
from appliance.model.wording import joined, printable
from appliance.profiles.linting.common_traps import COMMON_TRAPS
from appliance.profiles.linting.llama_cpp_traps import LLAMA_CPP_TRAPS
from appliance.profiles.linting.pytorch_traps import PYTORCH_TRAPS
from appliance.profiles.linting.trap import BENCHMARK, FIELD, GpuFacts, LintFacts, Trap

TRAPS: Final[tuple[Trap, ...]] = (
    *COMMON_TRAPS,
    *LLAMA_CPP_TRAPS,
    *PYTORCH_TRAPS,
)
RETIRED: Final[Mapping[TrapName, str]] = {}
"""Traps that no build in use has any more, each with the reason: a profile may go on naming them."""


_MOST_DETAIL: Final = 300
"""Longest phrase about a trap in a profile, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SprungTrap:
    """Trap that a profile has."""

    trap: Trap
    detail: str
    """Phrase that names what in the profile, its model or the GPUs is the trap."""
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
        gpus: GPUs of the box; None: they cannot be read, or need not be.
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
    """Return the sentence about traps that depend on GPUs which were not read."""
    return f"not checked: {joined(names)}: {reason}"


def known_version(build: EngineBuild | None) -> str | None:
    """Return the version of a build as its program prints it; None: not known."""
    return build.version if build is not None and build.version else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreventedTrap:
    """Trap that the appliance makes impossible."""

    name: str
    """Name in the style of `TrapName`, for the test."""
    statement: str
    prevented_by: str
    source: str


PREVENTED: Final = (
    PreventedTrap(
        name="fitting",
        statement="llama.cpp fits context and layers to the VRAM that is free: after a late release it serves less than"
        " was configured, without a word",
        prevented_by="`--fit off`, with `--ctx-size` and `--gpu-layers` always given",
        source="llama.cpp `--fit`, on by default since December 2025",
    ),
    PreventedTrap(
        name="cors",
        statement="engines answer any origin, with credentials, so that any page in a browser reaches them",
        prevented_by="`--cors-origins` with the server's own origin and `--no-cors-credentials` (llama-server, from July"
        " 2026 on), `--allowed-origins []` (vLLM); the gateway's own rule for the rest",
        source="llama.cpp pull request #25655; vLLM `--allowed-origins`",
    ),
    PreventedTrap(
        name="tool-choice",
        statement="a parser of tool calls does nothing without the automatic choice of tools",
        prevented_by="`tool_parser` writes `--enable-auto-tool-choice` too (vLLM)",
        source=BENCHMARK,
    ),
    PreventedTrap(
        name="memlock",
        statement="weights cannot be locked beyond the unit's limit, and go to swap",
        prevented_by="`LimitMEMLOCK=infinity` in every unit; a lower one is the trap memlock-limit",
        source=FIELD,
    ),
    PreventedTrap(
        name="divided-context",
        statement="`--parallel 2` halves the context of each request unless the cache is unified",
        prevented_by="`ctx` is what one request may use: `--ctx-size` is `ctx` times `parallel`",
        source="llama.cpp `--parallel`, `--kv-unified`",
    ),
    PreventedTrap(
        name="clamped-ubatch",
        statement="a physical batch above the logical one is clamped to it without a word",
        prevented_by="the profile is refused: `ubatch` above `batch`",
        source="llama.cpp `llama_context`",
    ),
    PreventedTrap(
        name="renamed-options",
        statement="`--mlock` and `--no-mmap` became `--load-mode`, and a build knows one of them",
        prevented_by="both spellings are in the unit, and the build is asked which one it has",
        source="llama.cpp pull request #20834 (b10114)",
    ),
    PreventedTrap(
        name="files-of-options",
        statement="llama-server reads options from `/etc/llama.cpp/config.ini` and from `XDG_CONFIG_HOME`",
        prevented_by="`InaccessiblePaths=-/etc/llama.cpp` and `XDG_CONFIG_HOME=/nonexistent`",
        source="llama.cpp pull request #26118",
    ),
    PreventedTrap(
        name="exposed-port",
        statement="an engine listens on all interfaces, and a change of the network exposes it",
        prevented_by="`--host 127.0.0.1`, and `IPAddressDeny=any` except loopback",
        source=f"{FIELD}; {BENCHMARK}",
    ),
    PreventedTrap(
        name="two-owners",
        statement="two enabled units start after a reboot, and neither gets enough memory",
        prevented_by="no `[Install]` in a unit, `Conflicts=` among rivals, and the gate before every start",
        source=FIELD,
    ),
    PreventedTrap(
        name="late-release",
        statement="the next engine starts before the memory of the last one is free",
        prevented_by="the gate (`ExecCondition=`) waits until the memory is there",
        source=FIELD,
    ),
    PreventedTrap(
        name="left-workers",
        statement="workers of vLLM outlive the process that is killed, and keep the memory",
        prevented_by="`KillMode=mixed`: a stop ends with an empty control group",
        source="vLLM, EngineCore",
    ),
    PreventedTrap(
        name="thinking-undone",
        statement="a request turns thinking on again, by its own budget or variables of the template",
        prevented_by="with `thinking` the server decides, and the gateway removes the parameters",
        source=f"{FIELD}; llama.cpp server-common.cpp (`reasoning_budget_tokens`)",
    ),
    PreventedTrap(
        name="sixteen-bit-cache",
        statement="a cache of sixteen bits is written as `auto`, which takes FP8 from a checkpoint",
        prevented_by='`kv = "f16"` is `float16`, and refused unless `dtype` says the same (vLLM)',
        source="vLLM `--kv-cache-dtype auto`",
    ),
    PreventedTrap(
        name="gpu-numbers",
        statement="CUDA numbers GPUs by speed, nvidia-smi by their slots: the model starts on the wrong card",
        prevented_by="`CUDA_DEVICE_ORDER=PCI_BUS_ID` with `CUDA_VISIBLE_DEVICES`",
        source="CUDA, environment variables",
    ),
    PreventedTrap(
        name="four-slots",
        statement="llama-server divides itself into several slots unless it is told how many",
        prevented_by="`--parallel 1` where `parallel` is unset",
        source="llama.cpp `--parallel` (-1: automatic)",
    ),
)
