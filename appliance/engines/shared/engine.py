"""Form of an engine: everything that the rest of the appliance asks about one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeVar

from appliance.domain.model_headers import Safetensors
from appliance.domain.paths import CACHE_DIR, HF_HOME, PREFIX
from appliance.domain.problems import Problem
from appliance.domain.profile_values import Gpus
from appliance.domain.spec import EngineOptions, Profile

Options = TypeVar("Options", bound=EngineOptions)


def options_of(kind: type[Options], profile: Profile) -> Options:
    """Return the options of `profile`, which must be of the engine whose options are of `kind`."""
    if not isinstance(profile.options, kind):
        raise TypeError(f"{profile.name}: {profile.engine} has no {kind.__name__}")
    return profile.options


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """How to start an engine."""

    argv: tuple[str, ...]
    """The first is an absolute path."""
    environment: Mapping[str, str]
    """Sorted by name, ours first overridden by the profile's [env]."""
    health_path: str
    """Answers 200 once a request can be served."""
    temporary: str = ""
    """Directory for temporary files, to be made and cleared before a start; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationContext:
    """What of the box an invocation depends on."""

    prefix: str = PREFIX
    """The appliance's own tree, with ``bin/python``."""
    hf_home: str = HF_HOME
    """The local Hugging Face cache; only read."""
    cache_root: str = CACHE_DIR
    """Holds a directory for every profile, which its backend may write."""
    threads: int = 2
    """For an embedded engine whose profile does not say."""


class Task(StrEnum):
    """What an engine answers."""

    GENERATE = "generate"
    EMBED = "embed"
    """Embeddings, and scores that llama-server gives on the same path."""
    CLASSIFY = "classify"
    """Classes, scores and rewards, on paths that differ between engines and their versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppLoading:
    """How llama.cpp is told to hold a model, for the estimate of a GGUF file."""

    projector: str | None = None
    """A second file, which is loaded with the model."""
    gpu_layers: Literal["all"] | int | None = None
    """None: all."""
    cpu_experts: Literal["all"] | tuple[int, ...] = ()
    """Layers whose experts stay in main memory."""
    expert_cache_mib: int = 0
    split_mode: str | None = None
    tensor_split: tuple[float, ...] = ()
    default_ctx: int | None = None
    """Tokens of one request, where the profile does not say; None: all requests share as many as
    the model was trained for."""
    kv_unified: bool = False
    """Requests share one cache of `Profile.ctx` tokens."""
    batch: int | None = None
    ubatch: int | None = None
    flash_attn: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PytorchLoading:
    """How an engine that runs PyTorch holds a model, for the estimate of safetensors files."""

    workers: int
    cache_bytes: int | None = None
    """Of each worker, where the profile says; None: by the model and the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """How an engine takes memory, as a profile's options say."""

    gpu_split: tuple[float, ...] = ()
    """Weights of the GPUs in their order, as `Applied.gpu_split` has them."""
    vram_fraction: float | None = None
    """Share of each GPU that the engine takes whatever the model is; None: no such rule."""
    ram_fraction: float | None = None
    """The same of main memory, for an engine that works on the CPU."""
    locks_memory: bool = False
    """Its weights are locked in RAM (mlock)."""
    loading: LlamaCppLoading | PytorchLoading | None = None
    """What the estimate is made from; None: nothing is known about the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Names of an engine's metrics on its page ``/metrics``, in Prometheus's text format.

    Names come and go with an engine's releases: the first that the page has counts.
    """

    running: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    kv_cache: tuple[str, ...] = ()
    """A share, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCachePage:
    """A page that tells the use of the KV cache where no metric does."""

    path: str
    read: Callable[[str], float | None]
    """The share in use, from 0 to 1, in the page's text; None: the page does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPrefixes:
    """What lines of an engine's log begin with, in this order: regular expressions, all optional."""

    process: str = ""
    """Which of the engine's processes writes; one group, its name."""
    stamp: str = ""
    """Time, and what else stands before a level of one letter or the text."""
    letter: str = ""
    """Level after the stamp; one group, one of D, I, W and E."""


def _usual_memory(_profile: Profile) -> MemoryUse:
    return MemoryUse()


def _no_task(_: Profile | Safetensors) -> Task | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A program that answers requests.

    Functions take a valid profile of this engine, except `problems`.
    """

    name: str
    """As profiles write it; also the name of its table."""
    options: type[EngineOptions]
    """Its table. A profile must have the table if an option in it has no default."""
    invocation: Callable[[Profile, InvocationContext], Invocation]
    """How to start it. Pure: equal arguments give equal invocations."""
    problems: Callable[[Profile], Iterable[Problem]]
    """What the engine cannot do, or must not be asked to. The values are checked for type."""
    needs_binary: bool = True
    """A profile must name the program."""
    needs_python_module: str = ""
    """A module that the appliance's own Python must have; empty: none."""
    arguments_name_files: bool = True
    """Paths among its arguments are files that it reads; False: they may be anything."""
    needs_model: bool = True
    """A profile must name a model."""
    packaged_model: str = ""
    """Name of the one model that it brings; it takes no other but files. Empty: none."""
    default_gpus: Gpus = "all"
    """Of a profile that says nothing."""
    weights: Literal["gguf", "safetensors"] | None = None
    """The format that it reads where a directory holds several; None: not known."""
    memory: Callable[[Profile], MemoryUse] = _usual_memory
    task: Callable[[Profile], Task | None] = _no_task
    """What its options say that it is run for; None: nothing."""
    model_task: Callable[[Safetensors], Task | None] = _no_task
    """What it makes of a model when no option says; None: not known."""
    refused_variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that no profile may set, whatever its engine, and why."""
    refused_variable_families: Mapping[str, str] = field(default_factory=dict)
    """The same by how names begin."""
    metrics: Metrics = field(default_factory=Metrics)
    kv_cache_page: KvCachePage | None = None
    admin_paths: frozenset[str] = frozenset()
    """Paths, after a version, that change the engine or tell of other clients; what begins with one
    is like it. ``python -m appliance.install.reference`` tells the gateway, which loads no engine."""
    admin_writes: frozenset[str] = frozenset()
    """Paths that do so only where the method is not one that reads."""
    log_prefixes: LogPrefixes = field(default_factory=LogPrefixes)
