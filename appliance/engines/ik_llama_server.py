"""llama-server of ik_llama.cpp, the fork of llama.cpp with its own quantisations, attention and placement.

Options as common/common.cpp of commit 8337e4cd (15 August 2026) reads them, pages as examples/server
of that commit has them. Where it differs from llama.cpp's server:

- Options of drafting are refused there, but for ``--spec-type METHOD:KEY=VALUE,…``, once for each of at
  most two methods.
- It has no masks of CPUs, no path of reranking, no socket, no word for all layers, and no switch that
  keeps it off the network: it downloads where a repository is named, so a model is a file.
- Templates are read as Jinja only with ``--jinja``; tool calls and ``--reasoning`` need that.
- Every origin is allowed (CORS), and no option changes it: nothing but the gateway reaches the port.
- Its help leaves options out that it reads (``--transparent-huge-pages``), so the build is not asked for its options.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, get_args

from appliance.engines.shared import llama_cpp, llama_cpp_report
from appliance.engines.shared import refused_arguments as why
from appliance.engines.shared.drafting import DraftMethod, by_name, draft_problems, used_methods
from appliance.engines.shared.engine import Engine, MemoryUse, Task, options_of
from appliance.engines.shared.invocation import (
    LOOPBACK,
    Invocation,
    InvocationContext,
    environment,
    hf_repository,
    words,
)
from appliance.engines.shared.option_table import FlagForm, ValueKind, flag, option_table, word
from appliance.engines.shared.self_report import draft_facts, exactly, model_fact, thinking_facts
from appliance.model.running_facts import DeclaredFact, Topic
from appliance.model.spec import Problem, Profile, Speculative
from appliance.model.value_types import (
    AbsolutePath,
    Count,
    Doc,
    FullText,
    Length,
    Paths,
    Range,
    Text,
    Threads,
    Tokens,
)

CacheType = Literal[
    "f32", "f16", "bf16", "q8_0", "q8_KV", "q6_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"
]
KV_TYPES: Final = get_args(CacheType)
_AUGUST: Final = "2026-08-15"
"""Day of a commit that has what the one of 10 April 2026 has not; the fork numbers no builds."""
_ALL_LAYERS: Final = 999
"""Number of layers by which the fork says all of them."""
_UNCERTAIN: Final = (
    *("--override-kv", "-okv"),
    *("--cache-type-k-", "--cache-type-v-", "-ctk-", "-ctv-"),
)
"""Beginnings of options that may change the cache in ways that the estimate does not follow."""
_MAX_METHODS: Final = 2
_DRAFT_KEYS: Final = frozenset({"min_tokens", "min_probability", "gpu_layers", "device", "kv"})
_MAP_SIZES: Final = {
    "tokens": ("n_max", "ngram_size_m"),
    "match": ("ngram_size_n",),
    "hits": ("ngram_min_hits",),
}
_NGRAM_SIZES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "ngram_simple": _MAP_SIZES,
    "ngram_map_k": _MAP_SIZES,
    "ngram_map_k4v": _MAP_SIZES,
    "ngram_mod": {"tokens": ("n_max",), "min_tokens": ("n_min",), "match": ("ngram_size_n",)},
    "ngram_cache": {"tokens": ("n_max",)},
    "suffix": {"tokens": ("n_max",), "match": ("suffix_min_match_len",)},
}
"""Keys inside ``--spec-type`` for sizes of n-grams, by the method in the fork's own words."""
_NGRAM: Final = {
    name: DraftMethod(name=name, sizes=frozenset(sizes), counts_tokens=False)
    for name, sizes in _NGRAM_SIZES.items()
}
METHODS: Final = by_name(
    {
        "mtp": DraftMethod(name="mtp", model="optional"),
        "dflash": DraftMethod(name="dflash", model="required"),
        "dspark": DraftMethod(name="dspark", model="required"),
        "draft": DraftMethod(name="draft", model="required"),
        "ngram": _NGRAM["ngram_simple"],
        **{name.replace("_", "-"): method for name, method in _NGRAM.items()},
    }
)
_AFTER_NGRAMS: Final = frozenset({"mtp", "draft"})
"""Methods that may draft where n-grams found nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IkLlamaServerOptions(llama_cpp.LlamaCppOptions):
    """``[ik-llama-server]``: options of ik_llama.cpp's HTTP server."""

    kv_offload: Annotated[
        bool | None,
        Doc("whether the cache is on the GPUs with its layers; false: in host RAM"),
        flag("--no-kv-offload", "-nkvo", form=FlagForm.DERIVED),
    ] = None
    lora: Annotated[
        Paths, Doc("files of LoRA adapters"), flag("--lora", form=FlagForm.REPEATED)
    ] = ()
    mmproj: Annotated[AbsolutePath | None, Doc("the multimodal projector"), flag("--mmproj")] = None
    mmproj_offload: Annotated[
        bool | None,
        Doc("whether the projector is on a GPU"),
        flag("--no-mmproj-offload", form=FlagForm.DERIVED),
    ] = None
    mlock: Annotated[bool, Doc("pin the weights in RAM"), flag("--mlock", form=FlagForm.SWITCH)] = (
        False
    )
    ctx_checkpoints: Annotated[
        Annotated[int, Range(least=0, most=4096)] | None,
        Doc("most checkpoints of one request's state or window in host RAM; unset: 32"),
        flag("--ctx-checkpoints", "-ctx-ckpt", since=_AUGUST),
    ] = None
    pooling: Annotated[
        Literal["none", "mean", "cls", "last"] | None,
        Doc("how tokens become one embedding; unset: as the model says"),
        flag("--pooling"),
    ] = None
    split_mode: Annotated[
        Literal["none", "layer", "attn", "graph"] | None,
        Doc("how the model is split over the GPUs; `graph`: every layer over all"),
        flag("--split-mode", "-sm"),
    ] = None
    graph_scheduling: Annotated[
        bool,
        Doc("force the scheduling of `graph`, also where the fork would not"),
        flag("--split-mode-graph-scheduling", "-smgs", form=FlagForm.SWITCH),
    ] = False
    graph_reduce_type: Annotated[
        Literal["f32", "f16", "bf16", "q8_0"] | None,
        Doc("type in which GPUs exchange data with `graph`; unset: f16"),
        flag("--graph-reduce-type", "-grt"),
    ] = None
    scheduler_async: Annotated[
        bool,
        Doc("compute parts of a graph side by side"),
        flag("--scheduler-async", "-sas", form=FlagForm.SWITCH),
    ] = False
    max_gpu: Annotated[
        Annotated[int, Range(least=1, most=64)] | None,
        Doc("most GPUs at a time with `graph`"),
        flag("--max-gpu"),
    ] = None
    mmap: Annotated[
        bool | None,
        Doc("whether the weights are mapped; false: read into RAM, as `run_time_repack` does"),
        flag("--no-mmap", form=FlagForm.DERIVED),
    ] = None
    run_time_repack: Annotated[
        bool,
        Doc("rearrange weights for the CPU as they are loaded"),
        flag("--run-time-repack", "-rtr", form=FlagForm.SWITCH),
    ] = False
    transparent_huge_pages: Annotated[
        bool,
        Doc("keep weights in huge pages"),
        flag("--transparent-huge-pages", "-thp", form=FlagForm.SWITCH),
    ] = False
    validate_quants: Annotated[
        bool,
        Doc("look for broken blocks as the weights are loaded"),
        flag("--validate-quants", "-vq", form=FlagForm.SWITCH),
    ] = False
    defer_experts: Annotated[
        bool,
        Doc("read experts when they are first used; no warm-up of the engine's own"),
        flag("--defer-experts", form=FlagForm.SWITCH, since=_AUGUST),
    ] = False
    prefetch_experts: Annotated[
        bool,
        Doc("read experts ahead of their use"),
        flag("--prefetch-experts", form=FlagForm.SWITCH, since=_AUGUST),
    ] = False
    mla: Annotated[
        Annotated[int, Range(least=0, most=3)] | None,
        Doc(
            "attention of DeepSeek's kind: 0 plain, 1 and 2 by a compressed cache, 3 the faster of those; unset: 3"
        ),
        flag("--mla-use", "-mla"),
    ] = None
    attention_max_batch: Annotated[
        Annotated[int, Range(least=128, most=1 << 20)] | None,
        Doc("MiB of one step's products of queries and keys, without flash attention"),
        flag("--attention-max-batch", "-amb"),
    ] = None
    dsa: Annotated[
        bool,
        Doc("attend to few tokens, with models trained for it (GLM)"),
        flag("--dsa", "-dsa", form=FlagForm.SWITCH, since=_AUGUST),
    ] = False
    dsa_top_k: Annotated[
        Count | None,
        Doc("tokens that `dsa` attends to; unset: as the model says"),
        flag("--dsa-top-k", "-dsatk", since=_AUGUST),
    ] = None
    fused_indexer: Annotated[
        bool,
        Doc("choose the tokens of `dsa` in one step"),
        flag("--fused-indexer-topk", "-fidx", form=FlagForm.SWITCH, since=_AUGUST),
    ] = False
    indexer_cache: Annotated[
        CacheType | None,
        Doc("type of the cache by which `dsa` chooses tokens"),
        flag("--indexer-cache-type-k", "-ictk", since=_AUGUST),
    ] = None
    k_cache_hadamard: Annotated[
        bool,
        Doc("turn keys before they are quantised, which loses less"),
        flag("--k-cache-hadamard", "-khad", form=FlagForm.SWITCH),
    ] = False
    v_cache_hadamard: Annotated[
        bool,
        Doc("turn values before they are quantised, which loses less"),
        flag("--v-cache-hadamard", "-vhad", form=FlagForm.SWITCH),
    ] = False
    swa_compress: Annotated[
        bool,
        Doc("layers with a sliding window keep their window alone"),
        flag("--swa-compress", form=FlagForm.SWITCH, since=_AUGUST),
    ] = False
    fused_moe: Annotated[
        bool | None,
        Doc("whether the steps of an expert are one; unset: yes"),
        flag("--no-fused-moe", "-no-fmoe", form=FlagForm.DERIVED),
    ] = None
    fused_up_gate: Annotated[
        bool | None,
        Doc("whether the two matrices of a feed-forward network are one step; unset: yes"),
        flag("--no-fused-up-gate", "-no-fug", form=FlagForm.DERIVED),
    ] = None
    merge_qkv: Annotated[
        bool,
        Doc("merge the matrices of attention as they are loaded"),
        flag("--merge-qkv", "-mqkv", form=FlagForm.SWITCH),
    ] = False
    merge_up_gate_experts: Annotated[
        bool,
        Doc("merge two matrices of each expert as they are loaded"),
        flag("--merge-up-gate-experts", "-muge", form=FlagForm.SWITCH),
    ] = False
    grouped_expert_routing: Annotated[
        bool,
        Doc("choose experts by groups"),
        flag("--grouped-expert-routing", "-ger", form=FlagForm.SWITCH),
    ] = False
    smart_expert_reduction: Annotated[
        tuple[Annotated[float, Range(least=0, most=1e6)], ...],
        Length(most=2),
        Doc(
            "least number of experts, and the share of the best one's weight that more of them need; [6, 1]: always 6"
        ),
        flag("--smart-expert-reduction", "-ser", form=FlagForm.COMMAS),
    ] = ()
    offload_only_active: Annotated[
        bool | None,
        Doc("whether only experts in use are copied to a GPU for a batch; unset: yes"),
        flag("--no-offload-only-active-experts", "-no-ooae", form=FlagForm.DERIVED),
    ] = None
    offload_policy: Annotated[
        tuple[Annotated[int, Range(least=-1, most=1023)], ...],
        Length(most=64),
        Doc(
            "pairs of an operation's number and 0 or 1: whether GPUs compute it with weights in RAM"
        ),
        flag("--offload-policy", "-op", form=FlagForm.COMMAS),
    ] = ()
    graph_reuse: Annotated[
        bool | None,
        Doc("whether a graph is used again for the next token; unset: yes"),
        flag("--graph-reuse", "-gr", form=FlagForm.EITHER, contrary=("--no-graph-reuse", "-no-gr")),
    ] = None
    cuda_params: Annotated[
        Text | None,
        Doc("settings of the CUDA backend, such as `fusion=1`"),
        flag("--cuda-params", "-cuda"),
    ] = None
    warmup_batch: Annotated[
        bool, Doc("warm up with a whole batch"), flag("--warmup-batch", "-wb", form=FlagForm.SWITCH)
    ] = False
    context_shift: Annotated[
        llama_cpp.OnOffAuto | None,
        Doc("whether an answer goes on past the context, which forgets its beginning"),
        flag("--context-shift"),
    ] = None
    checkpoint_interval: Annotated[
        Annotated[int, Range(least=0, most=1 << 24)] | None,
        Doc("least tokens between two checkpoints"),
        flag("--ctx-checkpoints-interval", "-ctx-ckpt-i", since=_AUGUST),
    ] = None
    cache_ram_similarity: Annotated[
        Annotated[float, Range(least=0, most=1)] | None,
        Doc("most likeness to a prompt in the cache at which a slot's is stored there"),
        flag("--cache-ram-similarity", "-crs"),
    ] = None
    slot_similarity: Annotated[
        Annotated[float, Range(least=0, most=1)] | None,
        Doc("part of a prompt that must equal a slot's for the slot to be used again"),
        flag("--slot-prompt-similarity", "-sps"),
    ] = None
    reasoning_budget_message: Annotated[
        FullText | None,
        Doc("words that end a thought whose budget is spent"),
        flag("--reasoning-budget-message", since=_AUGUST),
    ] = None
    parallel_tool_calls: Annotated[
        bool,
        Doc("let the model call several tools at once"),
        flag("--parallel-tool-calls", "-ptcall", form=FlagForm.SWITCH, since=_AUGUST),
    ] = False
    draft_threads: Annotated[
        Threads | None,
        Doc("CPU threads that generate with the draft model"),
        flag("--threads-draft", "-td"),
    ] = None
    draft_ctx: Annotated[
        Tokens | None, Doc("context of the draft model"), flag("--ctx-size-draft", "-cd")
    ] = None
    draft_checkpoints: Annotated[
        Literal["auto", "per-step", "gpu-fallback", "cpu"] | None,
        Doc("where the state before a draft is kept, with recurrent models"),
        flag("--spec-ckpt-mode", since=_AUGUST),
    ] = None
    draft_tuning: Annotated[
        bool,
        Doc("find the length of drafts while serving"),
        flag("--spec-autotune", form=FlagForm.SWITCH),
    ] = False


COMMON: Final = (
    ("model", flag("--model", "-m", form=FlagForm.DERIVED)),
    ("served", flag("--alias", "-a", form=FlagForm.DERIVED)),
    *llama_cpp.CAPACITY_FLAGS,
    ("thinking", flag("--reasoning", "-rea", form=FlagForm.DERIVED, since=_AUGUST)),
    ("thinking.budget", flag("--reasoning-budget", form=FlagForm.DERIVED, kind=ValueKind.WHOLE)),
    ("sampling.temperature", flag("--temp", kind=ValueKind.NUMBER)),
    *llama_cpp.SAMPLING_FLAGS,
    ("speculative.method", flag("--spec-type", form=FlagForm.DERIVED)),
    ("speculative.model", flag("--model-draft", "-md", form=FlagForm.DERIVED)),
    (
        "speculative.gpu_layers",
        flag("--gpu-layers-draft", "-ngld", "--n-gpu-layers-draft", form=FlagForm.DERIVED),
    ),
    ("speculative.device", flag("--device-draft", "-devd", form=FlagForm.DERIVED)),
    ("speculative.kv.k", flag("--cache-type-k-draft", "-ctkd")),
    ("speculative.kv.v", flag("--cache-type-v-draft", "-ctvd")),
)
TABLE: Final = option_table(
    "ik-llama-server",
    IkLlamaServerOptions,
    COMMON,
    more=(
        ("chat_template", flag("--chat-template", form=FlagForm.DERIVED)),
        ("flash_attn", flag("--no-flash-attn", "-no-fa", form=FlagForm.DERIVED)),
        ("context_shift", flag("--no-context-shift", form=FlagForm.DERIVED)),
    ),
)
_ONLY_OFF: Final = {
    "kv_offload": "--no-kv-offload",
    "mmproj_offload": "--no-mmproj-offload",
    "mmap": "--no-mmap",
    "fused_moe": "--no-fused-moe",
    "fused_up_gate": "--no-fused-up-gate",
    "offload_only_active": "--no-offload-only-active-experts",
}
"""Options that switch off what is on, by their keys."""


def _invocation(profile: Profile, context: InvocationContext) -> Invocation:
    options = options_of(IkLlamaServerOptions, profile)
    parallel = profile.parallel or 1
    return Invocation(
        argv=(
            *(profile.binary, "--model", profile.model, "--alias", profile.models[0]),
            # -c is divided among the slots: ctx is what one request gets.
            *("--ctx-size", str((profile.ctx or 0) * parallel), "--parallel", str(parallel)),
            *TABLE.written_keys(profile),
            *TABLE.written(options),
            *(off for key, off in _ONLY_OFF.items() if getattr(options, key) is False),
            *_placement(profile, options),
            *_behaviour(profile, options),
            *profile.extra_args,
            *("--jinja", "--metrics", "--host", LOOPBACK, "--port", str(profile.endpoint.port)),
        ),
        environment=environment(profile, context),
        health_path="/health",
    )


def _placement(profile: Profile, options: IkLlamaServerOptions) -> Iterator[str]:
    layers = _layers(options.gpu_layers, on_gpus=profile.gpus != ())
    # Without GPUs in CUDA_VISIBLE_DEVICES there is no device, and no word that means none.
    yield from ("--gpu-layers", str(layers))
    if options.cpu_experts == "all":
        yield "--cpu-moe"
    elif options.cpu_experts:
        wanted = "|".join(map(str, options.cpu_experts))
        yield from ("--override-tensor", rf"blk\.({wanted})\.ffn_.*_exps\.=CPU")


def _layers(layers: Literal["all"] | int | None, *, on_gpus: bool) -> int:
    if layers is None:
        return _ALL_LAYERS if on_gpus else 0
    return _ALL_LAYERS if layers == "all" else layers


def _behaviour(profile: Profile, options: IkLlamaServerOptions) -> Iterator[str]:
    yield from llama_cpp.template_words(options.chat_template)
    if profile.thinking is not None:
        yield from ("--reasoning", "on" if profile.thinking.on else "off")
        yield from words("--reasoning-budget", profile.thinking.budget_tokens)
    if profile.speculative is not None:
        yield from _drafting(profile.speculative, on_gpus=profile.gpus != ())


def _drafting(speculative: Speculative, *, on_gpus: bool) -> Iterator[str]:
    for method in used_methods(speculative, METHODS):
        sizes = _ngram_sizes if method.name in _NGRAM_SIZES else _model_sizes
        pairs = ",".join(
            f"{key}={word(value)}"
            for key, value in sizes(speculative, method.name)
            if value is not None
        )
        yield from ("--spec-type", f"{method.name}:{pairs}" if pairs else method.name)
    if speculative.model is not None:
        layers = _layers(speculative.gpu_layers, on_gpus=on_gpus)
        yield from ("--model-draft", speculative.model, "--gpu-layers-draft", str(layers))
    if speculative.device:
        yield from ("--device-draft", ",".join(speculative.device))


def _model_sizes(speculative: Speculative, _name: str) -> Iterator[tuple[str, object]]:
    yield ("n_max", speculative.tokens)
    yield ("n_min", speculative.min_tokens)
    yield ("p_min", speculative.min_probability)


def _ngram_sizes(speculative: Speculative, name: str) -> Iterator[tuple[str, object]]:
    is_alone = all(METHODS[one].name in _NGRAM_SIZES for one in speculative.methods)
    for size, keys in _NGRAM_SIZES[name].items():
        value = getattr(speculative.ngram, size)
        if size == "tokens" and value is None and is_alone:
            value = speculative.tokens
        yield from ((key, value) for key in keys)


_DRAFTS: Final = "speculative"
RULES: Final = why.ArgumentRules(
    families=why.by_option(
        {why.TLS: "--ssl-", why.PRIVATE: "--log- --prompt-cache --sql", why.FITTING: "--fit"}
    ),
    refused=why.by_option(
        {
            why.HOST: "--host",
            why.KEY: "--api-key --api-key-file --hf-token -hft",
            why.LISTENER: "--rpc",
            why.METRICS: "--metrics",
            why.OFFLINE: "--hf-file -hff --hf-repo -hfr --mmproj-url --model-url -mu",
            why.PORT: "--port",
            why.PRIVATE: "--logdir -ld --lookup-cache-dynamic -lcd --slot-save-path",
            why.TOOLS: "--ui-mcp-proxy --webui-mcp-proxy",
            why.FITTING: "--gpu-fit-margin -gfm",
            why.VERBOSE: "--verbose -v --verbose-prompt --verbosity",
            "it loads no weights": "--dry-run -dr",
            "it serves files of this machine": "--path",
            "templates are always read as Jinja": "--jinja",
            "what runs is compared with the profile there": "--no-slots",
        }
    ),
    # The fork itself refuses these, and says what stands inside --spec-type.
    keys={
        **TABLE.keys,
        **dict.fromkeys(("--multi-token-prediction", "-mtp", "--spec-stage"), _DRAFTS),
        **dict.fromkeys(("--no-multi-token-prediction", "-no-mtp"), _DRAFTS),
        **dict.fromkeys(("--draft-params", "-draft"), _DRAFTS),
        **dict.fromkeys(("--draft", "--draft-max", "--draft-n"), "speculative.tokens"),
        **dict.fromkeys(("--draft-min", "--draft-n-min"), "speculative.min_tokens"),
        "--draft-p-min": "speculative.min_probability",
        "--spec-ngram-size-n": "speculative.ngram.match",
        "--spec-ngram-size-m": "speculative.ngram.tokens",
        "--spec-ngram-min-hits": "speculative.ngram.hits",
        "--suffix-pattern-len": "speculative.ngram.match",
    },
    since=dict.fromkeys(
        (
            *("--gpu-fit-margin", "-gfm", "--spec-stage", "--suffix-pattern-len"),
            *("--ui-mcp-proxy", "--webui-mcp-proxy"),
        ),
        _AUGUST,
    ),
)


def _declared(profile: Profile) -> Iterator[DeclaredFact]:
    yield from llama_cpp_report.context_fact(profile.ctx)
    yield exactly(Topic.SLOTS, "parallel", profile.parallel or 1)
    yield llama_cpp.layers_fact(profile, options_of(IkLlamaServerOptions, profile))
    yield from draft_facts(profile)
    yield model_fact(profile)
    yield from thinking_facts(profile, may_lack=True)


def _sees(profile: Profile) -> bool:
    """Return whether a projector is loaded."""
    return options_of(IkLlamaServerOptions, profile).mmproj is not None


def _problems(profile: Profile) -> Iterator[Problem]:
    options = options_of(IkLlamaServerOptions, profile)
    yield from why.argument_problems(profile, RULES)
    yield from _common_problems(profile)
    yield from draft_problems(profile, METHODS, keys=_DRAFT_KEYS, several=True)
    yield from _chain_problems(profile.speculative)
    yield from llama_cpp.option_problems(profile, options, _own_rules(profile, options))


def _common_problems(profile: Profile) -> Iterator[Problem]:
    if profile.tool_parser is not None:
        text = "ik_llama.cpp reads tool calls by the model's own template: remove tool_parser"
        yield Problem(where=("tool_parser",), text=text)
    if profile.endpoint.socket is not None:
        yield Problem(where=("socket",), text="ik_llama.cpp listens on a port: set port")
    if hf_repository(profile.model) is not None:
        text = "ik_llama.cpp would download a repository at each start: name the file of the model"
        yield Problem(where=("model",), text=text)
    yield from llama_cpp.cache_type_problems(profile, KV_TYPES, "ik_llama.cpp")
    draft = None if profile.speculative is None else profile.speculative.model
    if hf_repository(draft or "") is not None:
        text = "ik_llama.cpp reads draft models from files: name the file"
        yield Problem(where=("speculative", "model"), text=text)


def _chain_problems(speculative: Speculative | None) -> Iterator[Problem]:
    """Find methods that do not go together: n-grams may come first, and a model second."""
    methods = () if speculative is None else speculative.methods
    if len(methods) < _MAX_METHODS or not all(name in METHODS for name in methods):
        return
    first, second = (METHODS[name].name for name in methods[:_MAX_METHODS])
    if len(methods) > _MAX_METHODS or first not in _NGRAM_SIZES or second not in _AFTER_NGRAMS:
        text = "ik_llama.cpp takes two methods only as n-grams and then mtp or draft: keep one"
        yield Problem(where=("speculative", "method"), text=text)


def _own_rules(profile: Profile, options: IkLlamaServerOptions) -> Iterator[llama_cpp.Rule]:
    yield (
        "split_mode",
        options.split_mode == "graph" and profile.gpus != "all" and len(profile.gpus) < 2,  # noqa: PLR2004
        '"graph" needs two GPUs, and fewer are claimed',
    )
    yield (
        "mmap",
        options.run_time_repack and options.mmap is True,
        "run_time_repack reads the weights into RAM: keep one of the two",
    )
    yield (
        "smart_expert_reduction",
        len(options.smart_expert_reduction) == 1,
        "two numbers are needed: experts and a share, such as [6, 1]",
    )


def _memory(profile: Profile) -> MemoryUse:
    options = options_of(IkLlamaServerOptions, profile)
    return MemoryUse(
        gpu_split=llama_cpp.gpu_split(profile, options, options.split_mode),
        locks_memory=options.mlock,
        loading=replace(
            llama_cpp.shared_loading(profile, options, METHODS, uncertain=_UNCERTAIN),
            split_mode=options.split_mode,
            full_windows=not options.swa_compress,
        ),
    )


def _task(profile: Profile) -> Task | None:
    return Task.EMBED if options_of(IkLlamaServerOptions, profile).embedding else None


ENGINE: Final = Engine(
    # cpp-httplib sets SO_REUSEPORT, from 2025 on SO_REUSEADDR.
    port_reuse=("address", "port"),
    name="ik-llama-server",
    options=IkLlamaServerOptions,
    option_table=TABLE,
    invocation=_invocation,
    problems=_problems,
    arguments=RULES,
    weights="gguf",
    memory=_memory,
    task=_task,
    refused_variables={"LLAMA_HOTSWAP_ENABLED": "it reads changed weights while the model serves"},
    tools=llama_cpp.reads_tools,
    vision=_sees,
    declared=_declared,
    self_report=llama_cpp_report.REPORT,
    metrics=llama_cpp_report.METRICS,
    probing=llama_cpp_report.PROBING,
    # Routes of examples/server/server.cpp. Vectors change the answers of all clients.
    admin_paths=frozenset({"slots", "metrics", "lora-adapters", "control-vectors", "cors-proxy"}),
)
