"""llama-server, the HTTP server of llama.cpp.

Options as its own help listed them in October 2026 (build b11549), each with the spellings of
builds back to December 2025 (b7400, which brought ``--fit``): ``--load-mode`` came with b10114 and
``--mlock`` left before b11549, options for CORS came in July 2026, ``draft-mtp`` in May 2026.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from appliance.engines.shared import llama_cpp, llama_cpp_report
from appliance.engines.shared import refused_arguments as why
from appliance.engines.shared.drafting import DraftMethod, by_name, draft_problems, used_methods
from appliance.engines.shared.engine import (
    Engine,
    KvCachePage,
    LogPrefixes,
    MemoryUse,
    Task,
    VersionPage,
    options_of,
)
from appliance.engines.shared.invocation import (
    LOOPBACK,
    Invocation,
    InvocationContext,
    environment,
    hf_repository,
    hf_variables,
    words,
)
from appliance.engines.shared.option_table import FlagForm, ValueKind, flag, option_table
from appliance.engines.shared.self_report import (
    draft_facts,
    exactly,
    model_fact,
    stated,
    thinking_facts,
)
from appliance.model.engine_build import HELP_QUESTION, either
from appliance.model.running_facts import DeclaredFact, Topic
from appliance.model.spec import Problem, Profile, Speculative
from appliance.model.value_types import Doc, FullText, Range, Word

KV_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
_UNCERTAIN: Final = ("--override-kv", "--kv-unified-per-slot")
"""Options that may change the cache in ways that the estimate does not follow."""
_DRAFT_KEYS: Final = frozenset({"min_tokens", "min_probability", "gpu_layers", "device", "kv"})
_LOADING_BEFORE: Final[Mapping[str, tuple[str, ...]]] = {
    "auto": (),
    "none": ("--no-mmap",),
    "mmap": (),
    "mlock": ("--mlock", "--no-mmap"),
    "mmap+mlock": ("--mlock",),
    "dio": ("--direct-io",),
}
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
_NGRAM_BEFORE: Final = {
    "match": "--spec-ngram-size-n",
    "min_tokens": "--draft-min",
    "tokens": "--draft-max",
    "hits": "--spec-ngram-min-hits",
}
"""Options for the same in builds before May 2026, which have one for all methods."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaServerOptions(llama_cpp.LlamaCppOptions):
    """``[llama-server]``: options of llama.cpp's HTTP server."""

    split_mode: Annotated[
        Literal["none", "layer", "row", "tensor"] | None,
        Doc("how the model is split over the GPUs"),
        flag("--split-mode", "-sm"),
    ] = None
    cpus: Annotated[
        llama_cpp.Cpus,
        Doc('CPUs to stay on: "0,2,4-9" or a list; written as a mask'),
        flag("--cpu-mask", "-C", write=llama_cpp.cpu_mask, read=llama_cpp.cpus_in_mask),
    ] = ()
    cpu_strict: Annotated[bool, Doc("one thread a CPU, in order"), flag("--cpu-strict")] = False
    rerank: Annotated[
        bool,
        Doc("serve scores of documents for a query"),
        flag("--rerank", "--reranking", form=FlagForm.SWITCH),
    ] = False
    n_cpu_ffn: Annotated[
        llama_cpp.LayerCount | None,
        Doc("how many layers, from the first, keep their dense feed-forward weights in host RAM"),
        flag("--n-cpu-ffn", "-ncffn"),
    ] = None
    expert_cache_mib: Annotated[
        Annotated[int, Range(least=0, most=1 << 22)] | None,
        Doc("VRAM in MiB that caches experts kept in host RAM"),
        flag("--moe-cache-mib", since="b11549"),
    ] = None
    kv_unified: Annotated[
        bool,
        Doc("whether requests share one cache of ctx tokens; else each has ctx tokens"),
        flag("--kv-unified", "-kvu", form=FlagForm.SWITCH, contrary=("--no-kv-unified", "-no-kvu")),
    ] = False
    swa_full: Annotated[
        bool,
        Doc("whether layers with a sliding window keep the whole context"),
        flag("--swa-full", form=FlagForm.SWITCH),
    ] = False
    checkpoint_min_step: Annotated[
        Annotated[int, Range(least=0, most=1 << 24)] | None,
        Doc("least tokens between two checkpoints"),
        flag("--checkpoint-min-step", "-cms"),
    ] = None
    load_mode: Annotated[
        Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"] | None,
        Doc("how the model's file is read; `none`, without mmap, is for experts in host RAM"),
        flag("--load-mode", "-lm", form=FlagForm.DERIVED, since="b10114"),
    ] = None
    repack: Annotated[
        bool | None,
        Doc("whether weights are rearranged for the CPU"),
        flag("--repack", form=FlagForm.EITHER, contrary=("--no-repack", "-nr")),
    ] = None
    op_offload: Annotated[
        bool | None,
        Doc("whether GPUs compute with weights that are in host RAM"),
        flag("--op-offload", form=FlagForm.EITHER, contrary=("--no-op-offload",)),
    ] = None
    cache_reuse: Annotated[
        Annotated[int, Range(least=0, most=1 << 24)] | None,
        Doc(
            "tokens of the shortest piece of an earlier prompt that is used again at another place"
        ),
        flag("--cache-reuse"),
    ] = None
    context_shift: Annotated[
        bool | None,
        Doc("whether an answer goes on past the context, which forgets its beginning"),
        flag("--context-shift", form=FlagForm.EITHER, contrary=("--no-context-shift",)),
    ] = None
    mmproj_auto: Annotated[
        bool | None,
        Doc("whether a projector in the model's repository is loaded without being named"),
        flag("--mmproj-auto", form=FlagForm.EITHER, contrary=("--no-mmproj", "--no-mmproj-auto")),
    ] = None
    reasoning_effort: Annotated[
        Word | None,
        Doc("effort that the chat template is given, such as `low`"),
        flag("--reasoning-effort"),
    ] = None
    reasoning_budget_message: Annotated[
        FullText | None,
        Doc("words that end a thought whose budget is spent"),
        flag("--reasoning-budget-message"),
    ] = None
    slot_similarity: Annotated[
        Annotated[float, Range(least=0, most=1)] | None,
        Doc("part of a prompt that must equal a slot's for the slot to be used again"),
        flag("--slot-prompt-similarity", "-sps"),
    ] = None


_HF = "hf:{}".format
COMMON: Final = (
    ("model", flag("--model", "-m", form=FlagForm.DERIVED)),
    ("model", flag("--hf-repo", "-hf", "-hfr", form=FlagForm.DERIVED, read=_HF)),
    ("served", flag("--alias", "-a", form=FlagForm.DERIVED, read=lambda text: text.split(","))),
    *llama_cpp.CAPACITY_FLAGS,
    ("thinking", flag("--reasoning", "-rea", form=FlagForm.DERIVED)),
    ("thinking.budget", flag("--reasoning-budget", form=FlagForm.DERIVED, kind=ValueKind.WHOLE)),
    ("sampling.temperature", flag("--temp", "--temperature", kind=ValueKind.NUMBER)),
    *llama_cpp.SAMPLING_FLAGS,
    ("speculative.method", flag("--spec-type", form=FlagForm.DERIVED)),
    (
        "speculative.tokens",
        flag(
            "--spec-draft-n-max",
            form=FlagForm.DERIVED,
            kind=ValueKind.WHOLE,
            former=("--draft-max", "--draft", "--draft-n"),
        ),
    ),
    (
        "speculative.min_tokens",
        flag(
            "--spec-draft-n-min",
            kind=ValueKind.WHOLE,
            former=("--draft-min", "--draft-n-min"),
            before="--draft-min",
        ),
    ),
    (
        "speculative.min_probability",
        flag(
            *("--spec-draft-p-min", "--draft-p-min"),
            kind=ValueKind.NUMBER,
            before="--draft-p-min",
        ),
    ),
    (
        "speculative.model",
        flag("--spec-draft-model", "-md", "--model-draft", form=FlagForm.DERIVED),
    ),
    (
        "speculative.model",
        flag(
            *("--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"),
            form=FlagForm.DERIVED,
            read=_HF,
        ),
    ),
    (
        "speculative.gpu_layers",
        flag(
            *("--spec-draft-ngl", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"),
            form=FlagForm.DERIVED,
        ),
    ),
    (
        "speculative.device",
        flag("--spec-draft-device", "-devd", "--device-draft", form=FlagForm.DERIVED),
    ),
    (
        "speculative.kv.k",
        flag(
            *("--spec-draft-type-k", "-ctkd", "--cache-type-k-draft"),
            before="--cache-type-k-draft",
        ),
    ),
    (
        "speculative.kv.v",
        flag(
            *("--spec-draft-type-v", "-ctvd", "--cache-type-v-draft"),
            before="--cache-type-v-draft",
        ),
    ),
    *(
        (f"speculative.ngram.{size}", flag(option, form=FlagForm.DERIVED, kind=ValueKind.WHOLE))
        for options in _NGRAM_OPTIONS.values()
        for size, option in options.items()
    ),
)
TABLE: Final = option_table(
    "llama-server",
    LlamaServerOptions,
    COMMON,
    more=(
        ("cpus", flag("--cpu-range", "-Cr")),
        ("load_mode", flag(form=FlagForm.DERIVED, former=("--no-mmap", "--mmap"))),
        ("load_mode", flag(form=FlagForm.DERIVED, former=("--direct-io", "--no-direct-io"))),
        ("chat_template", flag("--chat-template", form=FlagForm.DERIVED)),
    ),
)


def _invocation(profile: Profile, context: InvocationContext) -> Invocation:
    options = options_of(LlamaServerOptions, profile)
    return Invocation(
        argv=(
            profile.binary,
            *_model(profile),
            *_capacity(profile, options),
            *TABLE.written_keys(profile),
            *TABLE.written(options),
            *_placement(profile, options),
            *_behaviour(profile, options),
            *profile.extra_args,
            *_ours(profile),
        ),
        environment=environment(profile, context, hf_variables(profile, context)),
        health_path="/health",
    )


def _model(profile: Profile) -> Iterator[str]:
    repository = hf_repository(profile.model)
    yield from ("--model", profile.model) if repository is None else ("--hf-repo", repository)
    yield from ("--alias", ",".join(profile.models))


def _capacity(profile: Profile, options: LlamaServerOptions) -> Iterator[str]:
    parallel = profile.parallel or 1
    # -c is divided among the slots unless they share one cache: ctx is what one request gets.
    total = (profile.ctx or 0) * (1 if options.kv_unified else parallel)
    yield from ("--ctx-size", str(total), "--parallel", str(parallel))


def _placement(profile: Profile, options: LlamaServerOptions) -> Iterator[str]:
    layers = options.gpu_layers
    if layers is None:
        layers = 0 if profile.gpus == () else "all"
    yield from ("--gpu-layers", str(layers))
    if profile.gpus == ():
        yield from ("--device", "none")
    if options.cpu_experts == "all":
        yield "--cpu-moe"
    elif options.cpu_experts:
        # --n-cpu-moe takes the first layers; only a tensor override can name the last ones.
        wanted = "|".join(map(str, options.cpu_experts))
        yield from ("--override-tensor", rf"blk\.({wanted})\.ffn_.*_exps\.=CPU")
    yield from _loading(options)


def _loading(options: LlamaServerOptions) -> Iterator[str]:
    mode = "mmap+mlock" if options.mlock else options.load_mode
    if mode is not None:
        yield from either(("--load-mode", mode), _LOADING_BEFORE[mode])


def _behaviour(profile: Profile, options: LlamaServerOptions) -> Iterator[str]:
    yield from llama_cpp.template_words(options.chat_template)
    yield from _thinking(profile)
    yield from _drafting(profile)


def _thinking(profile: Profile) -> Iterator[str]:
    if profile.thinking is None:
        return
    is_on, budget = profile.thinking.on, profile.thinking.budget_tokens
    yield from either(
        ("--reasoning", "on" if is_on else "off", *words("--reasoning-budget", budget)),
        # Builds without the switch take 0 for a template without thinking.
        ("--reasoning-budget", str(budget or -1) if is_on else "0"),
    )


def _drafting(profile: Profile) -> Iterator[str]:
    speculative = profile.speculative
    if speculative is None:
        return
    used = used_methods(speculative, METHODS)
    yield from either(("--spec-type", ",".join(method.name for method in used)))
    if not all(method.sizes for method in used):
        yield from _renamed("--spec-draft-n-max", "--draft-max", speculative.tokens)
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
            yield from _renamed(option, _NGRAM_BEFORE[key], getattr(sizes, key))


def _draft_model(speculative: Speculative, *, on_gpus: bool) -> Iterator[str]:
    if speculative.model is not None:
        repository = hf_repository(speculative.model)
        if repository is None:
            yield from _renamed("--spec-draft-model", "--model-draft", speculative.model)
        else:
            yield from _renamed("--spec-draft-hf", "--hf-repo-draft", repository)
        given = speculative.gpu_layers
        layers = "all" if given is None and on_gpus else given or 0
        yield from _renamed("--spec-draft-ngl", "--gpu-layers-draft", layers)
    if speculative.device:
        yield from _renamed("--spec-draft-device", "--device-draft", ",".join(speculative.device))


def _renamed(option: str, before: str, value: str | int | None) -> tuple[str, ...]:
    """Return an option and its name in builds before May 2026, each with its value; nothing for None."""
    return () if value is None else either((option, str(value)), (before, str(value)))


def _ours(profile: Profile) -> Iterator[str]:
    yield from ("--fit", "off", "--metrics", "--offline")
    # Without options for CORS a server allows every origin, and there is nothing to set. Builds that
    # have them log at level 4 what they have loaded, and no text of a request; older ones may log that.
    cors = ("--cors-origins", _own_origin(profile), "--no-cors-credentials")
    yield from either((*cors, "--log-verbosity", llama_cpp_report.TELLING_LEVEL), cors, ())
    if profile.endpoint.socket is not None:
        yield from ("--host", profile.endpoint.socket)
    else:
        yield from ("--host", LOOPBACK, "--port", str(profile.endpoint.port))


def _own_origin(profile: Profile) -> str:
    """Return an origin that only the server's own pages have: "localhost" would admit any port."""
    return f"http://{LOOPBACK}:{profile.endpoint.port or 0}"


_OTHER_MODELS: Final = "a profile serves one model: write another profile for another model"
_PRESETS: Final = "it sets a model and options that the profile does not show: write them here"

# The options of build b11549.
RULES: Final = why.ArgumentRules(
    families=why.by_option(
        {
            why.CORS: "--cors- --no-cors-",
            why.TLS: "--ssl-",
            why.TOOLS: "--mcp-servers- --tools",
            _OTHER_MODELS: "--models- --no-models-",
            _PRESETS: "--fim-qwen- --gpt-oss- --vision-gemma-",
        }
    ),
    refused=why.by_option(
        {
            why.CLIENTS: "--props",
            why.HOST: "--host",
            why.KEY: "--api-key --api-key-file --hf-token -hft",
            why.LISTENER: "--rpc",
            why.METRICS: "--metrics",
            why.OFFLINE: "--docker-repo -dr --mmproj-url -mmu --model-url -mu --offline",
            why.PORT: "--port",
            why.PREFIX: "--api-prefix",
            why.PRIVATE: (
                "--log-file --log-prompts-dir --lookup-cache-dynamic -lcd --slot-save-path"
            ),
            why.TOOLS: "--agent -ag --ui-mcp-proxy --webui-mcp-proxy",
            why.FITTING: "--fit -fit --fit-ctx -fitc --fit-target -fitt",
            _PRESETS: "--embd-gemma-default",
            why.VERBOSE: (
                "--log-verbose --log-verbosity -lv -v --verbose --verbose-prompt --verbosity"
            ),
            "it serves files of this machine": "--path",
            "it unloads the model while the unit counts as serving": "--sleep-idle-seconds",
            "requests would read this machine's files": "--media-path",
            "two servers on one port would take each other's requests": "--reuse-port",
        }
    ),
    keys={**TABLE.keys, "--spec-default": "speculative"},
    former=frozenset({"--verbose-prompt"}),
)


def _declared(profile: Profile) -> Iterator[DeclaredFact]:
    options = options_of(LlamaServerOptions, profile)
    yield from llama_cpp_report.context_fact(profile.ctx)
    yield exactly(Topic.SLOTS, "parallel", profile.parallel or 1)
    if profile.kv is not None:
        keys, values = profile.kv.k, profile.kv.v
        text = keys if keys == values else f"{keys}, {values}"
        yield stated(Topic.KV, "kv", text, f"{keys}/{values}")
    yield llama_cpp.layers_fact(profile, options)
    yield from draft_facts(profile)
    yield model_fact(profile)
    yield from thinking_facts(profile, may_lack=True)
    if options.flash_attn in {"on", "off"}:
        yield stated(Topic.FLASH_ATTENTION, "[llama-server] flash_attn", str(options.flash_attn))


def _sees(profile: Profile) -> bool | None:
    """Return whether a projector is loaded; None: the repository may bring one."""
    if options_of(LlamaServerOptions, profile).mmproj is not None:
        return True
    return None if hf_repository(profile.model) is not None else False


def _problems(profile: Profile) -> Iterator[Problem]:
    options = options_of(LlamaServerOptions, profile)
    yield from why.argument_problems(profile, RULES)
    yield from _common_problems(profile)
    yield from llama_cpp.option_problems(profile, options, _own_rules(profile, options))


def _common_problems(profile: Profile) -> Iterator[Problem]:
    if profile.tool_parser is not None:
        text = "llama-server reads tool calls by the model's own template: remove tool_parser"
        yield Problem(where=("tool_parser",), text=text)
    yield from llama_cpp.cache_type_problems(profile, KV_TYPES, "llama-server")
    yield from draft_problems(profile, METHODS, keys=_DRAFT_KEYS, several=True)
    socket = profile.endpoint.socket
    if socket is not None and not socket.endswith(".sock"):
        text = "llama-server takes an address for a socket only if the address ends in .sock"
        yield Problem(where=("socket",), text=text)


def _own_rules(profile: Profile, options: LlamaServerOptions) -> Iterator[llama_cpp.Rule]:
    yield (
        "kv_unified",
        options.kv_unified and profile.parallel in {None, 1},
        "one request at a time shares no cache: set parallel, or remove kv_unified",
    )
    yield (
        "mlock",
        options.mlock and options.load_mode not in {None, "mmap+mlock"},
        f'load_mode is "{options.load_mode}": keep one of the two',
    )


def _memory(profile: Profile) -> MemoryUse:
    options = options_of(LlamaServerOptions, profile)
    return MemoryUse(
        gpu_split=llama_cpp.gpu_split(profile, options, options.split_mode),
        shares_cache=options.kv_unified,
        locks_memory=options.mlock or options.load_mode in {"mlock", "mmap+mlock"},
        loading=replace(
            llama_cpp.shared_loading(profile, options, METHODS, uncertain=_UNCERTAIN),
            brings_projector=_brings_projector(profile, options),
            cpu_ffn=options.n_cpu_ffn or 0,
            expert_cache_mib=options.expert_cache_mib or 0,
            split_mode=options.split_mode,
            kv_unified=options.kv_unified,
            full_windows=options.swa_full,
        ),
    )


def _brings_projector(profile: Profile, options: LlamaServerOptions) -> bool:
    """Tell whether a projector in the model's repository is loaded without being named."""
    named = options.mmproj is not None or options.mmproj_auto is False
    return not named and hf_repository(profile.model) is not None


def _task(profile: Profile) -> Task | None:
    options = options_of(LlamaServerOptions, profile)
    return Task.EMBED if options.embedding or options.rerank else None


ENGINE: Final = Engine(
    # cpp-httplib sets SO_REUSEPORT, from 2025 on SO_REUSEADDR.
    port_reuse=("address", "port"),
    name="llama-server",
    options=LlamaServerOptions,
    option_table=TABLE,
    build_question=HELP_QUESTION,
    former_keys={"legacy_options": "the program itself is asked which options it has"},
    invocation=_invocation,
    problems=_problems,
    arguments=RULES,
    weights="gguf",
    memory=_memory,
    task=_task,
    refused_variables={"LLAMA_API_KEY": why.SECRET},
    refused_variable_families={
        "LLAMA_ARG_": "it sets an option that the profile does not show: use a key or extra_args",
        "LLAMA_LOG_": why.PRIVATE,
    },
    former_variables=frozenset({"LLAMA_LOG_"}),
    tools=llama_cpp.reads_tools,
    vision=_sees,
    declared=_declared,
    self_report=llama_cpp_report.REPORT,
    metrics=llama_cpp_report.METRICS,
    probing=replace(
        llama_cpp_report.PROBING, version_page=VersionPage(path="/props", key="build_info")
    ),
    kv_cache_page=KvCachePage(path="/slots", read=llama_cpp_report.kv_cache_in_slots),
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
