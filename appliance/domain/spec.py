"""A profile as its owner writes it: the common options, and those of its engine.

Text enters through `appliance.adapters.profile_files.loading`; everything here is already checked for type
and range. What the daemon acts on is the compiled form, `appliance.domain.profile.Applied`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from appliance.domain.profile import Deadlines, Endpoint, Handling, Mark, Need, WarmUp

Gpus = Literal["all"] | tuple[int, ...]
"""The GPUs a backend sees: all of them, or those with these indexes; empty: the CPU."""


class Thinking(StrEnum):
    """Whether the server lets the model think before it answers."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """Types of the key and value caches, in the engine's own words."""

    k: str
    v: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculative:
    """Speculative decoding."""

    method: str
    """``mtp``, ``eagle``, ``eagle3``, ``ngram`` …, as the engine knows it."""
    tokens: int
    """Tokens drafted per step."""
    require: bool = False
    """A server that drafts nothing is not the one that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A command run before every start, as the backend's user."""

    command: tuple[str, ...]
    writable: tuple[str, ...] = ()
    """Absolute paths that the unit lets it change."""
    expect: tuple[str, ...] = ()
    """Names that its output must report as applied, else the backend refuses to serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """What must be there before a start."""

    mounts: tuple[str, ...] = ()
    """Absolute paths whose file systems must be mounted (RequiresMountsFor=)."""
    after: tuple[str, ...] = ()
    """Further units to start after (After=)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One key of [unit]: systemd's own section, key and values. Several values repeat the key."""

    section: str
    key: str
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        """``Section.Key``."""
        return f"{self.section}.{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of one engine: the table of a profile that has the engine's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One model, and how to serve it."""

    name: str
    """The stem of its file."""
    description: str = ""
    mark: Mark = Mark.STANDBY
    engine: str
    """A name in `appliance.engines.ENGINES`."""
    binary: str = ""
    """Absolute path; empty where the engine brings its own."""
    model: str = ""
    """Absolute path, ``hf:owner/name``, ``smollm2`` (the packaged model), or empty (command)."""
    served: tuple[str, ...]
    """Names and patterns that clients may ask for; never empty."""
    endpoint: Endpoint
    gpus: Gpus = "all"
    shared: bool = False
    """It claims nothing and runs beside the others."""
    ctx: int | None = None
    """Tokens one request may use; None: as many as the model was made for."""
    parallel: int | None = None
    """Requests served at once; None: the engine's own choice (one, for llama.cpp)."""
    kv: KvCache | None = None
    thinking: Thinking | None = None
    """None: the model's own default."""
    tool_parser: str | None = None
    speculative: Speculative | None = None
    need: Need = field(default_factory=Need)
    assume_free: bool = False
    """Start it also on GPUs whose memory cannot be read."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    warm_up: WarmUp | None = None
    """None: by what the engine serves (`engines.tasks`)."""
    user: str | None = None
    """None: the backend user of the settings, or one of its own."""
    env: Mapping[str, str] = field(default_factory=dict)
    patch: Patch | None = None
    gateway: Handling = field(default_factory=Handling)
    """As it is written; what `thinking` asks for is not in it."""
    order: Ordering = field(default_factory=Ordering)
    unit: tuple[Override, ...] = ()
    extra_args: tuple[str, ...] = ()
    options: EngineOptions

    @property
    def models(self) -> tuple[str, ...]:
        """The served names that are no patterns; the profile's own when all are."""
        plain = tuple(s for s in self.served if not set(s) & set("*?["))
        return plain or (self.name,)
