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


class Engine(StrEnum):
    """The program that answers requests."""

    LLAMA_SERVER = "llama-server"
    VLLM = "vllm"
    SGLANG = "sglang"
    XLLAMACPP = "xllamacpp"
    """llama.cpp's own server from a wheel, run by the appliance's interpreter."""
    COMMAND = "command"
    """Any other program that serves HTTP."""


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
class LlamaServerOptions:
    """[llama-server]. None everywhere: the engine's own default."""

    gpu_layers: Literal["all"] | int | None = None
    """None: all with GPUs, 0 without."""
    cpu_experts: Literal["all"] | tuple[int, ...] = ()
    """Layers whose experts stay in host RAM."""
    expert_cache_mib: int | None = None
    split_mode: str | None = None
    tensor_split: tuple[float, ...] = ()
    kv_unified: bool = False
    batch: int | None = None
    ubatch: int | None = None
    threads: int | None = None
    cpus: tuple[int, ...] = ()
    cpu_strict: bool = False
    mlock: bool = False
    cache_ram_mib: int | None = None
    """Host RAM for the prompt cache; 0: none; -1: no limit."""
    flash_attn: str | None = None
    mmproj: str | None = None
    embedding: bool = False
    legacy_options: bool = False
    """The build is older than June 2026: spell its options the old way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """[vllm]. None everywhere: the engine's own default."""

    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    """Overrides the utilisation."""
    dtype: str | None = None
    quantization: str | None = None
    enforce_eager: bool = False
    disable_custom_all_reduce: bool = False
    trust_remote_code: bool = False
    chat_template: str | None = None
    reasoning_parser: str | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    max_batched_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangOptions:
    """[sglang]. None everywhere: the engine's own default."""

    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    mem_fraction_static: float | None = None
    chunked_prefill_size: int | None = None
    attention_backend: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    disable_cuda_graph: bool = False
    trust_remote_code: bool = False
    chat_template: str | None = None
    reasoning_parser: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class XllamacppOptions:
    """[xllamacpp]."""

    threads: int | None = None
    """None: as many as the launch context says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """[command]."""

    argv: tuple[str, ...]
    """The first is an absolute path. ``{port}``, ``{socket}``, ``{host}`` and ``{model}`` are
    replaced; every other brace is kept."""
    health: str = "/health"
    """Path that answers 200 once a request can be served."""


EngineOptions = LlamaServerOptions | VllmOptions | SglangOptions | XllamacppOptions | CommandOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One model, and how to serve it."""

    name: str
    """The stem of its file."""
    description: str = ""
    mark: Mark = Mark.STANDBY
    engine: Engine
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


def locks_memory(profile: Profile) -> bool:
    """Whether the engine pins its weights in RAM, hence needs LimitMEMLOCK=infinity."""
    return isinstance(profile.options, LlamaServerOptions) and profile.options.mlock
