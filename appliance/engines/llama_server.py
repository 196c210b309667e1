"""llama-server, the HTTP server of llama.cpp.

Options as its own help listed them in October 2026; ``legacy_options`` spells them as builds
from before June 2026 did (``--mlock``, no CORS options, a number for all layers).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from appliance.domain.profile_values import KvCache, Layers
from appliance.domain.running_facts import DeclaredFact, Topic
from appliance.domain.spec import EngineOptions, Problem, Profile, Speculative, Where
from appliance.domain.value_types import (
    AbsolutePath,
    Count,
    Doc,
    Length,
    Range,
    Threads,
    TypeName,
    ValueParser,
    WrongValueError,
    is_index,
    shown,
    size,
)
from appliance.engines.shared import llama_cpp_report, llama_cpp_server
from appliance.engines.shared import refused_arguments as why
from appliance.engines.shared.declared_facts import (
    draft_facts,
    exactly,
    model_fact,
    stated,
    thinking_facts,
)
from appliance.engines.shared.drafting import (
    DraftMethod,
    by_name,
    draft_problems,
    used_methods,
)
from appliance.engines.shared.engine import (
    Engine,
    Invocation,
    InvocationContext,
    KvCachePage,
    LlamaCppLoading,
    LogPrefixes,
    MemoryUse,
    Task,
    options_of,
)
from appliance.engines.shared.probing import VersionPage
from appliance.engines.shared.rendering import (
    LOOPBACK,
    environment,
    hf_repository,
    hf_variables,
    switch,
    words,
)

KV_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
_DEFAULT_BATCH: Final = 2048
_ALL_LAYERS_LEGACY: Final = "999"
_NGRAM_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    **{
        name: {
            "match": f"--spec-{name}-size-n",
            "tokens": f"--spec-{name}-size-m",
            "hits": f"--spec-{name}-min-hits",
        }
        for name in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
    },
    "ngram-mod": {
        "match": "--spec-ngram-mod-n-match",
        "min_tokens": "--spec-ngram-mod-n-min",
        "tokens": "--spec-ngram-mod-n-max",
    },
}
"""Options for sizes of n-grams, by the method in llama.cpp's own words."""
_MOD_MIN_TOKENS: Final = 48
"""Shortest draft of ngram-mod, where nothing is said."""
_NGRAM: Final = {
    name: DraftMethod(name=name, sizes=frozenset(options), counts_tokens=False)
    for name, options in _NGRAM_OPTIONS.items()
}
METHODS: Final = by_name(
    {
        "mtp": DraftMethod(name="draft-mtp", model="optional"),
        "eagle3": DraftMethod(name="draft-eagle3", model="required"),
        "dflash": DraftMethod(name="draft-dflash", model="required"),
        "dspark": DraftMethod(name="draft-dspark", model="required"),
        "draft": DraftMethod(name="draft-simple", model="required"),
        "ngram": _NGRAM["ngram-simple"],
        **_NGRAM,
        "ngram-cache": DraftMethod(name="ngram-cache"),
    }
)


_MAX_INDEX: Final = 1023
_MAX_RANGES: Final = 4096
"""Limit of a text with ranges, in characters."""
_RANGE: Final = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?\Z", re.ASCII)
_NO_LIMIT_MIB: Final = -1


def _numbers(value: object) -> tuple[int, ...]:
    """Parse a list of indexes, or a text such as "0,2,4-9"."""
    found: Iterable[int] = ()
    if isinstance(value, list) and all(is_index(item, _MAX_INDEX) for item in value):
        found = value
    elif isinstance(value, str) and len(value) <= _MAX_RANGES:
        found = _ranges(value)
    if not found:
        raise WrongValueError(f'{shown(value)} is not a list or range such as "0,2,4-9"')
    return tuple(sorted(set(found)))


def _ranges(text: str) -> set[int]:
    """Return every number in `text`; empty when it is malformed."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > _MAX_INDEX:
            return set()
        found.update(range(first, last + 1))
    return found


def _experts(value: object) -> Literal["all"] | tuple[int, ...]:
    return "all" if value == "all" else _numbers(value)


def _on_off_auto(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value in ("on", "off", "auto"):
        return str(value)
    raise WrongValueError(f'{shown(value)} is not "on", "off" or "auto"')


def _cache_mib(value: object) -> int:
    return _NO_LIMIT_MIB if value == "unlimited" else size(value) >> 20


_Cpus = Annotated[tuple[int, ...], ValueParser(_numbers), TypeName("range or list")]
_Experts = Annotated[
    Literal["all"] | tuple[int, ...], ValueParser(_experts), TypeName("all, range or list")
]
_OnOffAuto = Annotated[str, ValueParser(_on_off_auto), TypeName("true, false or auto")]
_CacheMib = Annotated[int, ValueParser(_cache_mib), TypeName("size or unlimited")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaServerOptions(EngineOptions):
    """``[llama-server]``: options of llama.cpp's HTTP server."""

    gpu_layers: Annotated[
        Layers | None,
        Doc('layers on the GPUs: `"all"` or a number; unset: all with GPUs, 0 without'),
    ] = None
    cpu_experts: Annotated[
        _Experts, Doc('layers whose experts stay in host RAM: "26-29", or `"all"`')
    ] = ()
    expert_cache_mib: Annotated[
        Annotated[int, Range(least=0, most=1 << 22)] | None,
        Doc("VRAM in MiB that caches experts kept in host RAM"),
    ] = None
    split_mode: Annotated[
        Literal["none", "layer", "row", "tensor"] | None,
        Doc("how the model is split over the GPUs"),
    ] = None
    tensor_split: Annotated[
        tuple[Annotated[float, Range(least=0, most=1e6)], ...],
        Length(most=64),
        Doc("share of each GPU, such as [3, 1]"),
    ] = ()
    kv_unified: Annotated[
        bool, Doc("whether requests share one cache of ctx tokens; else each has ctx tokens")
    ] = False
    batch: Annotated[Count | None, Doc("tokens in a logical batch")] = None
    ubatch: Annotated[Count | None, Doc("tokens in a physical batch")] = None
    threads: Annotated[Threads | None, Doc("CPU threads that generate")] = None
    cpus: Annotated[_Cpus, Doc('CPUs to stay on: "0,2,4-9" or a list; written as a mask')] = ()
    cpu_strict: Annotated[bool, Doc("one thread a CPU, in order")] = False
    mlock: Annotated[bool, Doc("pin the weights in RAM (`--load-mode mmap+mlock`)")] = False
    cache_ram_mib: Annotated[
        _CacheMib | None,
        Doc('RAM of the prompt cache: "0", "2GiB" or "unlimited"', key="cache_ram"),
    ] = None
    flash_attn: Annotated[_OnOffAuto | None, Doc("true, false, or `auto`")] = None
    mmproj: Annotated[AbsolutePath | None, Doc("the multimodal projector")] = None
    embedding: Annotated[bool, Doc("serve embeddings only")] = False
    legacy_options: Annotated[
        bool, Doc("the build is older than June 2026: `--mlock`, and no CORS options at all")
    ] = False


def _invocation(profile: Profile, context: InvocationContext) -> Invocation:
    options = options_of(LlamaServerOptions, profile)
    return Invocation(
        argv=(
            profile.binary,
            *_model(profile, options),
            *_capacity(profile, options),
            *_placement(profile, options),
            *_processors(options),
            *_behaviour(profile, options),
            *profile.extra_args,
            *_ours(profile, options),
        ),
        environment=environment(profile, context, hf_variables(profile, context)),
        health_path="/health",
    )


def _model(profile: Profile, options: LlamaServerOptions) -> Iterator[str]:
    repository = hf_repository(profile.model)
    yield from ("--model", profile.model) if repository is None else ("--hf-repo", repository)
    yield from words("--mmproj", options.mmproj)
    names = profile.models[:1] if options.legacy_options else profile.models
    yield from ("--alias", ",".join(names))


def _capacity(profile: Profile, options: LlamaServerOptions) -> Iterator[str]:
    parallel = profile.parallel or 1
    # -c is divided among the slots unless they share one cache: ctx is what one request gets.
    total = (profile.ctx or 0) * (1 if options.kv_unified else parallel)
    yield from ("--ctx-size", str(total), "--parallel", str(parallel))
    yield from switch("--kv-unified", on=options.kv_unified)
    if profile.kv is not None:
        yield from ("--cache-type-k", profile.kv.k, "--cache-type-v", profile.kv.v)
    yield from words("--batch-size", options.batch)
    yield from words("--ubatch-size", options.ubatch)
    yield from words("--cache-ram", options.cache_ram_mib)


def _placement(profile: Profile, options: LlamaServerOptions) -> Iterator[str]:
    layers = options.gpu_layers
    if layers is None:
        layers = 0 if profile.gpus == () else "all"
    everything = _ALL_LAYERS_LEGACY if options.legacy_options else "all"
    yield from ("--gpu-layers", everything if layers == "all" else str(layers))
    if profile.gpus == ():
        yield from ("--device", "none")
    if options.cpu_experts == "all":
        yield "--cpu-moe"
    elif options.cpu_experts:
        # --n-cpu-moe takes the first layers; only a tensor override can name the last ones.
        wanted = "|".join(map(str, options.cpu_experts))
        yield from ("--override-tensor", rf"blk\.({wanted})\.ffn_.*_exps\.=CPU")
    yield from words("--moe-cache-mib", options.expert_cache_mib)
    yield from words("--split-mode", options.split_mode)
    if options.tensor_split:
        yield from ("--tensor-split", ",".join(f"{part:g}" for part in options.tensor_split))


def _processors(options: LlamaServerOptions) -> Iterator[str]:
    yield from words("--threads", options.threads)
    if options.cpus:
        yield from ("--cpu-mask", cpu_mask(options.cpus))
    if options.cpu_strict:
        yield from ("--cpu-strict", "1")
    if options.mlock:
        yield from ("--mlock",) if options.legacy_options else ("--load-mode", "mmap+mlock")


def cpu_mask(cpus: Iterable[int]) -> str:
    """Return CPU numbers as the hexadecimal mask that llama.cpp reads: 0,2,4-9 is 3F5."""
    return f"{sum(1 << n for n in set(cpus)):X}"


def _behaviour(profile: Profile, options: LlamaServerOptions) -> Iterator[str]:
    yield from words("--flash-attn", options.flash_attn)
    yield from switch("--embedding", on=options.embedding)
    yield from _thinking(profile, options)
    yield from _drafting(profile)


def _thinking(profile: Profile, options: LlamaServerOptions) -> Iterator[str]:
    if profile.thinking is None:
        return
    budget = profile.thinking.budget_tokens
    if options.legacy_options:
        # Builds of that time take 0 for a template without thinking.
        yield from ("--reasoning-budget", str(budget or -1) if profile.thinking.on else "0")
        return
    yield from ("--reasoning", "on" if profile.thinking.on else "off")
    yield from words("--reasoning-budget", budget)


def _drafting(profile: Profile) -> Iterator[str]:
    speculative = profile.speculative
    if speculative is None:
        return
    used = used_methods(speculative, METHODS)
    yield from ("--spec-type", ",".join(method.name for method in used))
    if not all(method.sizes for method in used):
        yield from words("--spec-draft-n-max", speculative.tokens)
    if any(method.model != "none" for method in used):
        yield from _draft_model(speculative, on_gpus=profile.gpus != ())
        tokens = speculative.ngram.tokens
    else:
        tokens = speculative.ngram.tokens or speculative.tokens
    for name in (method.name for method in used if method.sizes):
        sizes = replace(speculative.ngram, tokens=tokens)
        if name == "ngram-mod" and (tokens or _MOD_MIN_TOKENS) < _MOD_MIN_TOKENS:
            sizes = replace(sizes, min_tokens=sizes.min_tokens or tokens)
        for key, option in _NGRAM_OPTIONS[name].items():
            yield from words(option, getattr(sizes, key))


def _draft_model(speculative: Speculative, *, on_gpus: bool) -> Iterator[str]:
    if speculative.model is not None:
        repository = hf_repository(speculative.model)
        file = ("--spec-draft-model", speculative.model)
        yield from file if repository is None else ("--spec-draft-hf", repository)
        layers = speculative.gpu_layers
        yield from ("--spec-draft-ngl", str("all" if layers is None and on_gpus else layers or 0))
    if speculative.device:
        yield from ("--spec-draft-device", ",".join(speculative.device))
    if speculative.kv is not None:
        yield from ("--spec-draft-type-k", speculative.kv.k)
        yield from ("--spec-draft-type-v", speculative.kv.v)


def _ours(profile: Profile, options: LlamaServerOptions) -> Iterator[str]:
    yield from ("--fit", "off", "--metrics", "--offline")
    if not options.legacy_options:
        yield from ("--cors-origins", _own_origin(profile), "--no-cors-credentials")
    if profile.endpoint.socket is not None:
        yield from ("--host", profile.endpoint.socket)
    else:
        yield from ("--host", LOOPBACK, "--port", str(profile.endpoint.port))


def _own_origin(profile: Profile) -> str:
    """Return an origin that only the server's own pages have: "localhost" would admit any port."""
    return f"http://{LOOPBACK}:{profile.endpoint.port or 0}"


_FITTING: Final = "the appliance sizes nothing by itself: set ctx and gpu_layers"
_OTHER_MODELS: Final = "a profile serves one model: write another profile for another model"
_PRESETS: Final = "it sets a model and options that the profile does not show: write them here"
_VERBOSE: Final = "at this level prompts are logged"

# The options of build b11549.
RULES: Final = why.ArgumentRules(
    families={
        "--cors-": why.CORS,
        "--fim-qwen-": _PRESETS,
        "--gpt-oss-": _PRESETS,
        "--mcp-servers-": why.TOOLS,
        "--models-": _OTHER_MODELS,
        "--no-cors-": why.CORS,
        "--no-models-": _OTHER_MODELS,
        "--ssl-": why.TLS,
        "--tools": why.TOOLS,
        "--vision-gemma-": _PRESETS,
    },
    refused={
        "--agent": why.TOOLS,
        "-ag": why.TOOLS,
        "--api-key": why.KEY,
        "--api-key-file": why.KEY,
        "--api-prefix": why.PREFIX,
        "--docker-repo": why.OFFLINE,
        "-dr": why.OFFLINE,
        "--embd-gemma-default": _PRESETS,
        "--fit": _FITTING,
        "-fit": _FITTING,
        "--fit-ctx": _FITTING,
        "-fitc": _FITTING,
        "--fit-target": _FITTING,
        "-fitt": _FITTING,
        "--hf-token": why.KEY,
        "-hft": why.KEY,
        "--host": why.HOST,
        "-H": why.HOST,
        "--log-file": why.PRIVATE,
        "--log-prompts-dir": why.PRIVATE,
        "--log-verbose": _VERBOSE,
        "--log-verbosity": _VERBOSE,
        "--lookup-cache-dynamic": why.PRIVATE,
        "-lcd": why.PRIVATE,
        "-lv": _VERBOSE,
        "--media-path": "requests would read this machine's files",
        "--metrics": why.METRICS,
        "--mmproj-url": why.OFFLINE,
        "-mmu": why.OFFLINE,
        "--model-url": why.OFFLINE,
        "-mu": why.OFFLINE,
        "--offline": why.OFFLINE,
        "--path": "it serves files of this machine",
        "--port": why.PORT,
        "--props": why.CLIENTS,
        "--reuse-port": "two servers on one port would take each other's requests",
        "--rpc": why.LISTENER,
        "--server-base": why.LISTENER,
        "--slot-save-path": why.PRIVATE,
        "--sleep-idle-seconds": "it unloads the model while the unit counts as serving",
        "--ui-mcp-proxy": why.TOOLS,
        "-v": _VERBOSE,
        "--verbose": _VERBOSE,
        "--verbose-prompt": _VERBOSE,
        "--verbosity": _VERBOSE,
        "--webui-mcp-proxy": why.TOOLS,
    },
    keys={
        "--alias": "served",
        "-a": "served",
        "--batch-size": "[llama-server] batch",
        "-b": "[llama-server] batch",
        "--cache-ram": "[llama-server] cache_ram",
        "-cram": "[llama-server] cache_ram",
        "--cache-type-k": "kv",
        "-ctk": "kv",
        "--cache-type-v": "kv",
        "-ctv": "kv",
        "--cpu-mask": "[llama-server] cpus",
        "-C": "[llama-server] cpus",
        "--cpu-strict": "[llama-server] cpu_strict",
        "--cpu-range": "[llama-server] cpus",
        "-Cr": "[llama-server] cpus",
        "--ctx-size": "ctx",
        "-c": "ctx",
        "--device": "gpus",
        "-dev": "gpus",
        "--draft": "speculative",
        "--draft-max": "speculative",
        "--draft-n": "speculative",
        "--embedding": "[llama-server] embedding",
        "--embeddings": "[llama-server] embedding",
        "--flash-attn": "[llama-server] flash_attn",
        "-fa": "[llama-server] flash_attn",
        "--gpu-layers": "[llama-server] gpu_layers",
        "--n-gpu-layers": "[llama-server] gpu_layers",
        "-ngl": "[llama-server] gpu_layers",
        "--hf-repo": "model",
        "-hf": "model",
        "-hfr": "model",
        "--kv-unified": "[llama-server] kv_unified",
        "-kvu": "[llama-server] kv_unified",
        "--no-kv-unified": "[llama-server] kv_unified",
        "-no-kvu": "[llama-server] kv_unified",
        "--load-mode": "[llama-server] mlock",
        "-lm": "[llama-server] mlock",
        "--mlock": "[llama-server] mlock",
        "--mmproj": "[llama-server] mmproj",
        "-mm": "[llama-server] mmproj",
        "--model": "model",
        "-m": "model",
        "--moe-cache-mib": "[llama-server] expert_cache_mib",
        "--parallel": "parallel",
        "-np": "parallel",
        "--reasoning": "thinking",
        "-rea": "thinking",
        "--reasoning-budget": "thinking",
        "--spec-default": "speculative",
        "--spec-draft-n-max": "speculative",
        "--spec-type": "speculative",
        "--split-mode": "[llama-server] split_mode",
        "-sm": "[llama-server] split_mode",
        "--tensor-split": "[llama-server] tensor_split",
        "-ts": "[llama-server] tensor_split",
        "--threads": "[llama-server] threads",
        "-t": "[llama-server] threads",
        "--ubatch-size": "[llama-server] ubatch",
        "-ub": "[llama-server] ubatch",
    },
)


def _declared(profile: Profile) -> Iterator[DeclaredFact]:
    options = options_of(LlamaServerOptions, profile)
    yield from llama_cpp_report.context_fact(profile.ctx)
    yield exactly(Topic.SLOTS, "parallel", profile.parallel or 1)
    if profile.kv is not None:
        keys, values = profile.kv.k, profile.kv.v
        text = keys if keys == values else f"{keys}, {values}"
        yield stated(Topic.KV, "kv", text, f"{keys}/{values}")
    yield _layers_fact(profile, options)
    yield from draft_facts(profile)
    yield model_fact(profile)
    yield from thinking_facts(profile, may_lack=True)
    if options.flash_attn in {"on", "off"}:
        yield stated(Topic.FLASH_ATTENTION, "[llama-server] flash_attn", str(options.flash_attn))


def _layers_fact(profile: Profile, options: LlamaServerOptions) -> DeclaredFact:
    layers = options.gpu_layers
    if profile.gpus == ():
        return exactly(Topic.GPU_LAYERS, "gpus", 0)
    if layers is None or layers == "all":
        key = "gpus" if layers is None else "[llama-server] gpu_layers"
        return stated(Topic.GPU_LAYERS, key, "all")
    return exactly(Topic.GPU_LAYERS, "[llama-server] gpu_layers", layers)


def _reads_tools(_profile: Profile) -> bool:
    """Tell that tool calls are read by the template of any model, or generically without one."""
    return True


def _sees(profile: Profile) -> bool | None:
    """Tell whether a projector is loaded; None: the repository may bring one."""
    if options_of(LlamaServerOptions, profile).mmproj is not None:
        return True
    return None if hf_repository(profile.model) is not None else False


def _problems(profile: Profile) -> Iterator[Problem]:
    options = options_of(LlamaServerOptions, profile)
    yield from why.argument_problems(profile, RULES)
    yield from _common_problems(profile, options)
    yield from _table_problems(profile, options)


def _common_problems(profile: Profile, options: LlamaServerOptions) -> Iterator[Problem]:
    if profile.tool_parser is not None:
        text = "llama-server reads tool calls by the model's own template: remove tool_parser"
        yield Problem(where=("tool_parser",), text=text)
    yield from _kv_problems(profile.kv, ("kv",))
    if profile.speculative is not None:
        yield from _kv_problems(profile.speculative.kv, ("speculative", "kv"))
    placement = frozenset({"gpu_layers", "device", "kv"})
    yield from draft_problems(profile, METHODS, placement=placement, several=True)
    if profile.speculative is not None and options.legacy_options:
        text = "builds from before June 2026 spell this differently: remove legacy_options"
        yield Problem(where=("speculative",), text=text)
    socket = profile.endpoint.socket
    if socket is not None and not socket.endswith(".sock"):
        text = "llama-server takes an address for a socket only if the address ends in .sock"
        yield Problem(where=("socket",), text=text)


def _kv_problems(kv: KvCache | None, where: Where) -> Iterator[Problem]:
    sides = () if kv is None else (kv.k, kv.v)
    for side in [side for side in sides if side not in KV_TYPES][:1]:
        text = f'kv "{side}" is unknown to llama-server: use one of {", ".join(KV_TYPES)}'
        yield Problem(where=where, text=text)


def _table_problems(profile: Profile, options: LlamaServerOptions) -> Iterator[Problem]:
    batch = options.batch or _DEFAULT_BATCH
    if options.ubatch is not None and options.ubatch > batch:
        text = f"ubatch {options.ubatch} is above batch {batch}, which would clamp it: raise batch"
        yield Problem(where=("llama-server", "ubatch"), text=text)
    if profile.gpus == () and options.gpu_layers not in {None, 0}:
        text = "this profile claims no GPU: set gpus, or remove gpu_layers"
        yield Problem(where=("llama-server", "gpu_layers"), text=text)
    if profile.gpus == () and options.cpu_experts:
        text = "without GPUs all experts are in host RAM: remove cpu_experts"
        yield Problem(where=("llama-server", "cpu_experts"), text=text)
    if options.kv_unified and profile.parallel in {None, 1}:
        text = "one request at a time shares no cache: set parallel, or remove kv_unified"
        yield Problem(where=("llama-server", "kv_unified"), text=text)


def _memory(profile: Profile) -> MemoryUse:
    options = options_of(LlamaServerOptions, profile)
    # llama.cpp takes a split of nothing but zeros for no split at all.
    split = options.tensor_split if any(options.tensor_split) else ()
    if options.split_mode == "none":
        split = (1.0,)
    return MemoryUse(
        gpu_split=() if profile.gpus == () else split,
        locks_memory=options.mlock,
        loading=LlamaCppLoading(
            projector=options.mmproj,
            gpu_layers=options.gpu_layers,
            cpu_experts=options.cpu_experts,
            expert_cache_mib=options.expert_cache_mib or 0,
            split_mode=options.split_mode,
            tensor_split=options.tensor_split,
            kv_unified=options.kv_unified,
            batch=options.batch,
            ubatch=options.ubatch,
            flash_attn=options.flash_attn,
        ),
    )


def _task(profile: Profile) -> Task | None:
    options = options_of(LlamaServerOptions, profile)
    ranks = not {"--rerank", "--reranking"}.isdisjoint(profile.extra_args)
    return Task.EMBED if options.embedding or ranks else None


def kv_cache_in_slots(slots: str) -> float | None:
    """Return the share of llama-server's context that requests take; None: no slots listed."""
    try:
        document = json.loads(slots)
    except (ValueError, RecursionError):
        return None
    rows = [row for row in document if isinstance(row, dict)] if isinstance(document, list) else []
    total = sum(_whole(row.get("n_ctx")) for row in rows)
    return round(min(1.0, sum(map(_tokens, rows)) / total), 4) if total else None


def _tokens(row: Mapping[str, object]) -> int:
    """Count the tokens in a slot's context; an idle slot keeps only what may be dropped."""
    if row.get("is_processing") is not True:
        return 0
    later = row.get("next_token")
    decoding = later[0] if isinstance(later, list) and later else later
    decoded = decoding.get("n_decoded") if isinstance(decoding, dict) else None
    return _whole(row.get("n_past")) or _whole(row.get("n_prompt_tokens")) + _whole(decoded)


def _whole(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


ENGINE: Final = Engine(
    name="llama-server",
    options=LlamaServerOptions,
    invocation=_invocation,
    problems=_problems,
    weights="gguf",
    memory=_memory,
    task=_task,
    refused_variables={"LLAMA_API_KEY": why.SECRET},
    refused_variable_families={
        "LLAMA_ARG_": "it sets an option that the profile does not show: use a key or extra_args",
        "LLAMA_LOG_": why.PRIVATE,
    },
    tools=_reads_tools,
    vision=_sees,
    declared=_declared,
    self_report=llama_cpp_report.REPORT,
    metrics=llama_cpp_server.METRICS,
    probing=replace(
        llama_cpp_server.PROBING, version_page=VersionPage(path="/props", key="build_info")
    ),
    kv_cache_page=KvCachePage(path="/slots", read=kv_cache_in_slots),
    # tools/server/server.cpp, as of November 2026. Its tools read and write files, its proxy
    # reaches other hosts, and "stream" shows what others generate to whoever knows the
    # conversation's name.
    admin_paths=frozenset(
        {
            *("slots", "metrics", "lora-adapters", "lora-adapters-list", "cors-proxy", "tools"),
            *("stream", "streams"),
            "chat/completions/control",  # ends the thinking of a request of any client
        }
    ),
    admin_writes=frozenset({"props"}),
    # Example: 0.00.123.456 I
    log_prefixes=LogPrefixes(stamp=r"\d+(?:\.\d+){3} ", letter=r"([DIWE]) +(?=\S)"),
)
