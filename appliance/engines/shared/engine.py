"""Type of an engine: everything that the rest of the appliance has to know about one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, TypeVar

from appliance.engines.shared.invocation import Invocation, InvocationContext
from appliance.engines.shared.option_table import NO_OPTIONS, OptionTable
from appliance.engines.shared.refused_arguments import ArgumentRules
from appliance.engines.shared.self_report import PageReader, SelfReport
from appliance.model.measurements import RawTimings
from appliance.model.model_headers import Safetensors
from appliance.model.profile_values import Gpus
from appliance.model.running_facts import DeclaredFact
from appliance.model.spec import EngineOptions, Problem, Profile

_MOST: Final = 1 << 31
"""Limit of tokens and of milliseconds."""
_MOST_VERSION: Final = 120
_NO_THINKING: Final[Mapping[str, object]] = {"chat_template_kwargs": {"enable_thinking": False}}


Options = TypeVar("Options", bound=EngineOptions)


def options_of(kind: type[Options], profile: Profile) -> Options:
    """Return the options of `profile`, whose engine must have options of type `kind`."""
    if not isinstance(profile.options, kind):
        raise TypeError(f"{profile.name}: {profile.engine} has no {kind.__name__}")
    return profile.options


class Task(StrEnum):
    """Kind of answer that an engine gives."""

    GENERATE = "generate"
    EMBED = "embed"
    """Embeddings, and scores that llama-server gives on the same path."""
    CLASSIFY = "classify"
    """Classes, scores and rewards, on paths that differ between engines and their versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLoading:
    """Settings with which llama.cpp drafts tokens by a model; n-grams take no memory."""

    tokens: int = 0
    """Tokens drafted in each step; 0: not known."""
    own_layers: bool = False
    """Whether the model's own layers for drafting are loaded (``draft-mtp``)."""
    model: str | None = None
    """Path of a draft model; None: the model drafts by itself, or the path is not known."""
    gpu_layers: Literal["all"] | int | None = None
    """Number of layers of the draft model on the GPUs; None: all."""
    key_type: str = "f16"
    """Type of the keys in the draft's cache."""
    value_type: str = "f16"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppLoading:
    """Settings with which llama.cpp holds a model, for the estimate of a GGUF file."""

    projector: str | None = None
    """Path of a second file, which is loaded with the model."""
    brings_projector: bool = False
    """Whether a projector is loaded that the model's repository has beside the model."""
    projector_in_ram: bool = False
    gpu_layers: Literal["all"] | int | None = None
    """Number of layers on the GPUs; None: all."""
    cpu_experts: Literal["all"] | tuple[int, ...] = ()
    """Layers whose experts stay in main memory."""
    cpu_ffn: int = 0
    """Number of first layers whose feed-forward network stays in main memory."""
    overrides: tuple[str, ...] = ()
    """Patterns of tensors, each with the buffer that holds them: ``blk\\.1\\.=CPU``."""
    cache_in_ram: bool = False
    """Whether the cache stays in main memory, wherever its layer is."""
    expert_cache_mib: int = 0
    split_mode: str | None = None
    tensor_split: tuple[float, ...] = ()
    default_ctx: int | None = None
    """Tokens of one request, where the profile does not say; None: all requests share as many as
    the model was trained for."""
    kv_unified: bool = False
    """Whether requests share one cache of `Profile.ctx` tokens."""
    full_windows: bool = False
    """Whether layers with a sliding window keep the whole context (``--swa-full``)."""
    checkpoints: int = 32
    """Most checkpoints of one request's state or window, kept in main memory."""
    certain: bool = True
    """Whether no further argument changes the cache in a way that is not followed."""
    sets_types: bool = True
    """Whether the engine has an option for the types of the cache."""
    batch: int | None = None
    ubatch: int | None = None
    flash_attn: str | None = None
    draft: DraftLoading | None = None
    """Drafting by a model; None: there is none, or only by n-grams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PytorchLoading:
    """Settings with which an engine on PyTorch holds a model, for the estimate of safetensors."""

    workers: int
    tensor: int = 1
    """Number of workers over which each layer is split; what cannot be split they all hold."""
    cache_bytes: int | None = None
    """Bytes of each worker's cache, where the profile says; None: by the model and the context."""
    offload_bytes: int = 0
    """Bytes of weights that each worker keeps in main memory (``--cpu-offload-gb``)."""
    certain: bool = True
    """Whether no option loads fewer weights than the model's files have."""
    converts: bool = False
    """Whether weights are loaded in another type than their files have, by an option."""
    dtype: str | None = None
    """Type of weights and activations that an option sets; None: the model's own."""
    state_dtype: str | None = None
    """Type of recurrent states that an option sets; None: the model's own."""
    batch: int = 2048
    """Tokens of one step, for which a windowed cache has room beside the window. vLLM's server takes
    8192 where a GPU has 70 GiB and more."""
    block: int = 16
    """Tokens of one page of the cache."""
    aligned: bool = False
    """Whether a second copy of each state is kept, for prompts that are cached."""
    drafts: int = 0
    """Drafted tokens before a check; 0: none by the model's own layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory use of an engine, as a profile's options say."""

    gpu_split: tuple[float, ...] = ()
    """Weights of the GPUs in their order, as `Applied.gpu_split` has them."""
    vram_fraction: float | None = None
    """Share of each GPU that the engine takes whatever the model is; None: no such rule."""
    ram_fraction: float | None = None
    """Share of main memory that the engine takes whatever the model is, on the CPU; None: no such
    rule."""
    locks_memory: bool = False
    """Whether the weights are locked in RAM (mlock)."""
    shares_cache: bool = False
    """Whether all requests share one cache of the tokens that one of them may use."""
    loading: LlamaCppLoading | PytorchLoading | None = None
    """Input of the estimate; None: nothing is known about the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Names of an engine's metrics on its page ``/metrics``, in Prometheus's text format.

    Names come and go with an engine's releases: the first that the page has counts.
    """

    running: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    kv_cache: tuple[str, ...] = ()
    """Names of a metric that is a share, from 0 to 1."""
    finished: tuple[str, ...] = ()
    """Names of a counter of requests that have ended."""
    prefill_s: tuple[str, ...] = ()
    """Names of a sum of seconds from the start of requests to their first tokens."""
    decode_s: tuple[str, ...] = ()
    """Names of a sum of seconds from the first tokens of requests to their last."""
    cached_tokens: tuple[str, ...] = ()
    """Names of a counter of prompt tokens that the prefix cache held."""
    prefix_queries: tuple[str, ...] = ()
    """Names of a counter of prompt tokens that were looked up in the prefix cache."""
    prefix_hits: tuple[str, ...] = ()
    """Names of a counter of those of them that it held."""
    drafted_tokens: tuple[str, ...] = ()
    accepted_tokens: tuple[str, ...] = ()
    verify_steps: tuple[str, ...] = ()
    """Names of a counter of steps that verified drafts, where none counts accepted tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPage:
    """Page of an engine that has its version, as JSON."""

    path: str
    key: str
    """Member of the page's object with the version."""

    def read(self, text: str) -> str | None:
        """Return the version in the page's text; None: the page has none."""
        value = (PageReader(self.path, text).mapping() or {}).get(self.key)
        return value if isinstance(value, str) and 0 < len(value) <= _MOST_VERSION else None


def exact_length(output_tokens: int, salt: str) -> Mapping[str, object]:
    """Return parameters for exactly so many tokens, as vLLM and SGLang take them.

    Both keep cached prefixes of requests with different `cache_salt` apart, also the beginning that
    the chat template writes before the prompt (vllm/entrypoints/openai and
    sglang/srt/entrypoints/openai/protocol.py, as of November 2026; older builds ignore it).
    """
    return {
        "max_tokens": output_tokens,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "cache_salt": salt,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """Names and values that an engine uses where a probe measures it."""

    parameters: Callable[[int, str], Mapping[str, object]] = exact_length
    """Function that returns, for a number of output tokens and a salt, the request parameters by
    which the engine generates exactly as many tokens and reuses no cached prompt."""
    chat_parameters: Mapping[str, object] = field(default_factory=lambda: _NO_THINKING)
    """Further parameters of a chat request: the template writes no thinking."""
    timings: Callable[[Mapping[str, object]], RawTimings | None] = lambda _event: None
    """Function that reads the timings in one event of a response; None: it has none. What the event says of cached
    tokens counts as part of the prompt; an event that says nothing of them has the evaluated tokens alone."""
    piece_parameters: Mapping[str, object] | None = None
    """Further parameters of a request whose prompt goes on where that of the one before ended: the
    engine evaluates only the rest, its timings say how much that was, and it completes texts
    without a chat template. None: the engine gives way to a real request in the middle of a prompt,
    or does not say."""
    has_metrics: bool = True
    """Whether the page ``/metrics`` may have the times of a request."""
    version_page: VersionPage | None = None
    """None: no page has it."""
    version_of_module: str = ""
    """Module of the appliance's own Python whose package has the version; empty: none."""


def count(value: object) -> int | None:
    """Return `value` if it is a whole number that a probe can reach; else None."""
    return value if type(value) is int and 0 <= value <= _MOST else None


def seconds(milliseconds: object) -> float | None:
    """Return milliseconds as seconds; None: not a number that a probe can reach."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return None
    return milliseconds / 1e3 if 0 <= milliseconds <= _MOST else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCachePage:
    """Page that has the use of the KV cache where no metric has it."""

    path: str
    read: Callable[[str, bool], float | None]
    """Function that reads the share in use, from 0 to 1, in the page's text; None: the page does
    not say. The second argument says whether all requests share one cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPrefixes:
    """Prefixes of an engine's log lines, in this order: regular expressions, all optional."""

    process: str = ""
    """Expression for the process of the engine that writes; one group, the process's name."""
    stamp: str = ""
    """Expression for the time, and what else stands before a level of one letter or the text."""
    letter: str = ""
    """Expression for the level after the stamp; one group, one of D, I, W and E."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Program that answers requests, and what the appliance knows about it.

    Functions take a valid profile of this engine, except `problems`.
    """

    name: str
    """Name as profiles write it; also the name of the engine's table."""
    options: type[EngineOptions]
    """Type of the engine's table. A profile must have the table if an option in it has no
    default."""
    invocation: Callable[[Profile, InvocationContext], Invocation]
    """Function that returns how to start the engine. Pure: equal arguments give equal
    invocations."""
    problems: Callable[[Profile], Iterable[Problem]]
    """Function that finds what the engine cannot do or may not do. Types are already
    checked."""
    option_table: OptionTable = NO_OPTIONS
    """Options of the engine that keys of a profile are written as."""
    arguments: ArgumentRules | None = None
    """Options that have a key, and those that are refused; None: the engine has no ``extra_args`` of
    its own kind."""
    port_reuse: tuple[Literal["address", "port"], ...] = ("address",)
    """Options of its listening socket, of which its builds set one: SO_REUSEADDR, SO_REUSEPORT. Empty: not
    known, which counts as neither."""
    needs_binary: bool = True
    """Whether a profile must name the program."""
    build_question: str = ""
    """Question to the program about its version and options (`appliance.model.engine_build`); empty:
    the program is never asked."""
    former_keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that the engine's table had in earlier releases, each with the reason why it has them no
    more."""
    needs_python_module: str = ""
    """Module that the appliance's own Python must have; empty: none."""
    arguments_name_files: bool = True
    """Whether paths among the engine's arguments are files that it reads; False: they may be
    anything."""
    needs_model: bool = True
    """Whether a profile must name a model."""
    packaged_model: str = ""
    """Name of the one model that comes with the engine, which else takes files only. Empty:
    none."""
    default_gpus: Gpus = "all"
    """GPUs of a profile that does not say."""
    weights: Literal["gguf", "safetensors"] | None = None
    """Format that the engine reads where a directory holds several; None: not known."""
    memory: Callable[[Profile], MemoryUse] = lambda _profile: MemoryUse()
    task: Callable[[Profile], Task | None] = lambda _: None
    """Function that returns what a profile's options say the engine is run for; None: nothing."""
    model_task: Callable[[Safetensors], Task | None] = lambda _: None
    """Function that returns what the engine makes of a model when no option says; None: not
    known."""
    refused_variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that no profile may set, whatever its engine, each with the reason."""
    refused_variable_families: Mapping[str, str] = field(default_factory=dict)
    """Beginnings of names of such variables, each with the reason."""
    former_variables: frozenset[str] = frozenset()
    """Variables and beginnings above that only older builds read."""
    tools: Callable[[Profile], bool] = lambda _profile: False
    """Function that returns whether a profile that does not say promises tool calls."""
    vision: Callable[[Profile], bool | None] = lambda _profile: None
    """Function that returns whether a profile's options load what takes images; None: they do not
    say."""
    reasoning: Callable[[Profile], bool | None] = lambda _profile: None
    """Function that returns whether a profile's options keep thinking apart from answers; None: they
    do not say."""
    thinking_parameters: Callable[[Profile], Mapping[str, object]] = lambda _profile: {}
    """Function that returns request parameters, dots reaching into objects, which the gateway has to
    set so that thinking is as the profile says: what the engine takes from requests alone."""
    adapter_name: Callable[[Profile, str], str] = lambda _profile, name: name
    """Function that returns the model that a request names to reach an adapter."""
    most_rank: Callable[[Profile], int | None] = lambda _profile: None
    """Function that returns the highest rank of an adapter that the engine is started for; None: it looks itself."""
    declared: Callable[[Profile], Iterable[DeclaredFact]] = lambda _profile: ()
    """Function that returns what a profile declares of the facts that the engine may report."""
    self_report: SelfReport = field(default_factory=SelfReport)
    """Places in which the engine reports them."""
    metrics: Metrics = field(default_factory=Metrics)
    probing: Probing = field(default_factory=Probing)
    kv_cache_page: KvCachePage | None = None
    admin_paths: frozenset[str] = frozenset()
    """Paths, after a version, that change the engine or show what other clients do; longer paths that
    begin with one are treated like it. ``python -m appliance.install.reference`` tells the gateway,
    which loads no engine."""
    admin_writes: frozenset[str] = frozenset()
    """Admin paths only for methods that write; reading them is open to clients."""
    log_prefixes: LogPrefixes = field(default_factory=LogPrefixes)
