"""Engine vLLM, started as ``vllm serve``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Annotated, Final, Literal

from appliance.engines.shared import pytorch
from appliance.engines.shared import refused_arguments as why
from appliance.engines.shared.drafting import DraftMethod, by_name, draft_problems, used_methods
from appliance.engines.shared.engine import (
    Engine,
    LogPrefixes,
    MemoryUse,
    Metrics,
    Probing,
    PytorchLoading,
    Task,
    VersionPage,
    options_of,
)
from appliance.engines.shared.invocation import (
    LOOPBACK,
    Invocation,
    InvocationContext,
    hf_repository,
)
from appliance.engines.shared.option_table import (
    Flag,
    FlagForm,
    ValueKind,
    bytes_text,
    compact_json,
    flag,
    option_table,
)
from appliance.engines.shared.self_report import (
    Reading,
    ReportPage,
    SelfReport,
    counted,
    on_off,
    spoken,
    stated,
    version_words,
)
from appliance.model.engine_build import distribution_question, either
from appliance.model.model_headers import Safetensors
from appliance.model.profile_values import JsonTable
from appliance.model.running_facts import DeclaredFact, ReportedFact, Topic
from appliance.model.spec import EngineOptions, Problem, Profile, Speculative
from appliance.model.value_types import (
    AbsolutePath,
    Count,
    Doc,
    Fraction,
    FullText,
    Range,
    Shards,
    Size,
    Word,
)

# vllm/config/cache.py, CacheDType. "auto" is no sixteen-bit type: it takes FP8 from a checkpoint that
# names kv_cache_quant_algo. float16 and bfloat16 have to be the model's own type.
KV_TYPES: Final = {
    "auto": "auto",
    "bf16": "bfloat16",
    "f16": "float16",
    **{
        name: name
        for name in (
            *("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", "fp8_per_token_head"),
            *("int4_per_token_head", "int8_per_token_head", "nvfp4", "nvfp4_4over6"),
            *("nvfp4_ds_mla", "turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc"),
            *("turboquant_3bit_nc", "octave_k3v4", "octave_k3v3", "octave_k3v3_compact"),
            "ultraquant_4bit",
        )
    },
}
_SIXTEEN_BITS: Final = {"bf16": ("bfloat16",), "f16": ("float16", "half")}
"""Values of ``dtype`` by the type of a sixteen-bit cache."""

_SAMPLING: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repetition_penalty",
    "max_tokens": "max_new_tokens",
}
"""Values of a generation config that vLLM takes, by key (ModelConfig.get_diff_sampling_param)."""

# vllm/config/speculative.py, SpeculativeMethod.
_MTP: Final = DraftMethod(name="mtp", model="optional")
METHODS: Final = by_name(
    {
        "mtp": _MTP,
        "eagle": DraftMethod(name="eagle", model="required"),
        "eagle3": DraftMethod(name="eagle3", model="required"),
        "dflash": DraftMethod(name="dflash", model="required"),
        "dspark": DraftMethod(name="dspark", model="optional"),
        "draft": DraftMethod(name="draft_model", model="required"),
        "ngram": DraftMethod(name="ngram", sizes=frozenset({"match", "min_match"})),
        "ngram_gpu": DraftMethod(name="ngram_gpu", sizes=frozenset({"match", "min_match"})),
        "suffix": DraftMethod(name="suffix", counts_tokens=False),
        # Older names of the same, by the model.
        **dict.fromkeys(("deepseek_mtp", "ernie_mtp", "glm4_moe_mtp", "mimo_mtp"), _MTP),
        **dict.fromkeys(("qwen3_next_mtp", "qwen3_5_mtp"), _MTP),
    }
)
_OURS: Final = {
    "VLLM_HOST_IP": LOOPBACK,
    "VLLM_NO_USAGE_STATS": "1",
    # Directory of its sockets: in TMPDIR their paths would exceed the 107 bytes allowed for a
    # socket.
    "VLLM_RPC_BASE_PATH": "/tmp",  # noqa: S108 - the unit has one of its own
}
_ON_CPU: Final = {
    # vLLM 0.32 saves the compiled model ahead of time, cannot load it on a CPU (its loader wants
    # finalize_loading, which only the backend of its GPU builds has) and compiles again. Without
    # that, PyTorch's own caches serve the second start: docs/decisions/019.
    "VLLM_USE_AOT_COMPILE": "0",
}
_CPU_CACHE: Final = "VLLM_CPU_KVCACHE_SPACE"
_GIB_COUNT: Final = re.compile(r"[0-9]{1,6}", re.ASCII)
CHAT_KWARGS: Final = "--default-chat-template-kwargs"


def _either(name: str) -> Flag:
    return flag(f"--{name}", form=FlagForm.EITHER, contrary=_contrary(name))


def _contrary(name: str) -> tuple[str, ...]:
    """Return the spellings of an option's opposite; ``--disable-x`` of ``--enable-x`` since 0.33."""
    pairs = (("enable-", "disable-"), ("disable-", "enable-"))
    paired = (f"--{b}{name.removeprefix(a)}" for a, b in pairs if name.startswith(a))
    return (f"--no-{name}", *paired)


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions(EngineOptions):
    """``[vllm]``: options of vLLM."""

    tensor_parallel: Annotated[
        Shards | None,
        Doc("GPUs over which each layer is split"),
        flag("--tensor-parallel-size", "-tp"),
    ] = None
    pipeline_parallel: Annotated[
        Shards | None,
        Doc("groups of layers, each on its own GPU"),
        flag("--pipeline-parallel-size", "-pp"),
    ] = None
    expert_parallel: Annotated[
        bool,
        Doc("split experts whole over the GPUs, not each of them"),
        flag(
            *("--enable-expert-parallel", "-ep"),
            form=FlagForm.SWITCH,
            contrary=_contrary("enable-expert-parallel"),
        ),
    ] = False
    gpu_memory_utilization: Annotated[
        Fraction | None,
        Doc("part of each GPU's memory that vLLM takes"),
        flag("--gpu-memory-utilization", "--device-memory-utilization"),
    ] = None
    kv_cache_memory_bytes: Annotated[
        Size | None,
        Doc('"4GiB": size of the cache on each GPU; overrides gpu_memory_utilization'),
        flag("--kv-cache-memory-bytes", read=bytes_text),
    ] = None
    cpu_offload_gb: Annotated[
        Annotated[float, Range(least=0, most=4096)] | None,
        Doc("GiB of each GPU's weights that stay in host RAM"),
        flag("--cpu-offload-gb"),
    ] = None
    dtype: Annotated[Word | None, Doc("type of weights and activations"), flag("--dtype")] = None
    quantization: Annotated[
        Word | None,
        Doc("method of quantisation; unset: as the model says"),
        flag("--quantization", "-q"),
    ] = None
    load_format: Annotated[
        Word | None, Doc("format and way in which weights are read"), flag("--load-format")
    ] = None
    hf_overrides: Annotated[
        JsonTable,
        Doc("values of the model's config.json"),
        flag("--hf-overrides", form=FlagForm.JSON),
    ] = field(default_factory=dict)
    tokenizer_mode: Annotated[
        Word | None, Doc("tokenizer, such as `mistral`"), flag("--tokenizer-mode")
    ] = None
    max_batched_tokens: Annotated[
        Count | None, Doc("tokens processed in one step"), flag("--max-num-batched-tokens")
    ] = None
    long_prefill_token_threshold: Annotated[
        Count | None,
        Doc("tokens from which on a prompt is long, and gives way to shorter ones"),
        flag("--long-prefill-token-threshold"),
    ] = None
    block_size: Annotated[
        Count | None, Doc("tokens in a block of the cache"), flag("--block-size")
    ] = None
    mamba_cache_mode: Annotated[
        Literal["all", "align", "none"] | None,
        Doc("how states of hybrid models are cached between requests"),
        flag("--mamba-cache-mode"),
    ] = None
    mamba_ssm_cache_dtype: Annotated[
        Word | None, Doc("type of the states of hybrid models"), flag("--mamba-ssm-cache-dtype")
    ] = None
    attention_backend: Annotated[
        Word | None, Doc("attention kernels, such as `FLASHINFER`"), flag("--attention-backend")
    ] = None
    moe_backend: Annotated[
        Word | None, Doc("kernels of mixtures of experts"), flag("--moe-backend")
    ] = None
    compilation_config: Annotated[
        JsonTable,
        Doc('`{ cudagraph_mode = "FULL_DECODE_ONLY" }`: what is compiled and captured'),
        flag("--compilation-config", "-cc", form=FlagForm.JSON),
    ] = field(default_factory=dict)
    max_cudagraph_capture_size: Annotated[
        Count | None,
        Doc("most tokens of a step that is captured as a CUDA graph"),
        flag("--max-cudagraph-capture-size"),
    ] = None
    limit_mm_per_prompt: Annotated[
        JsonTable,
        Doc("`{ image = 2, video = 0 }`: most images, videos and sounds of a prompt"),
        flag("--limit-mm-per-prompt", form=FlagForm.JSON),
    ] = field(default_factory=dict)
    mm_processor_kwargs: Annotated[
        JsonTable,
        Doc("values of the processor of images"),
        flag("--mm-processor-kwargs", form=FlagForm.JSON),
    ] = field(default_factory=dict)
    mm_processor_cache_gb: Annotated[
        Annotated[float, Range(least=0, most=4096)] | None,
        Doc("GiB of RAM for processed images"),
        flag("--mm-processor-cache-gb"),
    ] = None
    language_model_only: Annotated[
        bool,
        Doc("load nothing that takes images"),
        flag("--language-model-only", form=FlagForm.SWITCH),
    ] = False
    chat_template: Annotated[
        AbsolutePath | None,
        Doc("file with a chat template, in place of the model's"),
        flag("--chat-template"),
    ] = None
    chat_template_kwargs: Annotated[
        JsonTable,
        Doc(
            '`{ reasoning_effort = "low" }`: variables of the chat template, unless a client sets them'
        ),
        flag(CHAT_KWARGS, form=FlagForm.DERIVED),
    ] = field(default_factory=dict)
    reasoning_parser: Annotated[
        Word | None,
        Doc("parser that separates thinking from the answer"),
        flag("--reasoning-parser"),
    ] = None
    generation_config: Annotated[
        FullText | None,
        Doc(
            "whose sampling parameters are the defaults: `vllm`, `auto` for the model's, or a folder"
        ),
        flag("--generation-config"),
    ] = None
    override_generation_config: Annotated[
        JsonTable,
        Doc("defaults of sampling beside those of `sampling`, by vLLM's own names"),
        flag("--override-generation-config", form=FlagForm.DERIVED),
    ] = field(default_factory=dict)
    prefix_caching: Annotated[
        bool | None,
        Doc("keep the cache of prompts between requests"),
        _either("enable-prefix-caching"),
    ] = None
    chunked_prefill: Annotated[
        bool | None,
        Doc("process prompts in chunks, beside decoding"),
        _either("enable-chunked-prefill"),
    ] = None
    async_scheduling: Annotated[
        bool | None,
        Doc("plan a step while the one before it runs"),
        _either("async-scheduling"),
    ] = None
    enforce_eager: Annotated[
        bool, Doc("run without CUDA graphs"), flag("--enforce-eager", form=FlagForm.SWITCH)
    ] = False
    disable_custom_all_reduce: Annotated[
        bool,
        Doc("use NCCL for all-reduce, as cards without NVLink may need"),
        flag(
            "--disable-custom-all-reduce",
            form=FlagForm.SWITCH,
            contrary=_contrary("disable-custom-all-reduce"),
        ),
    ] = False
    trust_remote_code: Annotated[
        bool,
        Doc("run code that comes with the model"),
        flag("--trust-remote-code", form=FlagForm.SWITCH),
    ] = False


COMMON: Final = (
    ("model", flag("--model", form=FlagForm.DERIVED)),
    ("served", flag("--served-model-name", form=FlagForm.DERIVED)),
    ("adapters", flag("--lora-modules", form=FlagForm.DERIVED)),
    (
        "adapters",
        flag("--enable-lora", form=FlagForm.DERIVED, contrary=_contrary("enable-lora")),
    ),
    ("adapters", flag("--max-lora-rank", form=FlagForm.DERIVED)),
    ("gpus", flag("--device-ids", form=FlagForm.DERIVED)),
    ("ctx", flag("--max-model-len", kind=ValueKind.WHOLE)),
    ("parallel", flag("--max-num-seqs", kind=ValueKind.WHOLE)),
    ("kv", flag("--kv-cache-dtype", form=FlagForm.DERIVED)),
    ("tool_parser", flag("--tool-call-parser", form=FlagForm.DERIVED)),
    (
        "tool_parser",
        flag(
            "--enable-auto-tool-choice",
            form=FlagForm.DERIVED,
            contrary=_contrary("enable-auto-tool-choice"),
        ),
    ),
    ("speculative", flag("--speculative-config", "-sc", form=FlagForm.DERIVED)),
    ("speculative.method", flag("--spec-method", form=FlagForm.DERIVED)),
    ("speculative.model", flag("--spec-model", form=FlagForm.DERIVED)),
    ("speculative.tokens", flag("--spec-tokens", form=FlagForm.DERIVED, kind=ValueKind.WHOLE)),
)
TABLE: Final = option_table("vllm", VllmOptions, COMMON)


def _invocation(profile: Profile, context: InvocationContext) -> Invocation:
    options = options_of(VllmOptions, profile)
    return pytorch.invocation(
        profile,
        context,
        (
            profile.binary,
            "serve",
            hf_repository(profile.model) or profile.model,
            *_common(profile, options),
            *TABLE.written(options),
            *profile.extra_args,
            *_ours(profile),
        ),
        _OURS | (_ON_CPU if profile.gpus == () else {}),
    )


def _common(profile: Profile, options: VllmOptions) -> Iterator[str]:
    yield from ("--served-model-name", *profile.models)
    yield from _adapters(profile)
    yield from TABLE.written_keys(profile)
    if profile.kv is not None:
        yield from ("--kv-cache-dtype", KV_TYPES[profile.kv.k])
    if kwargs := pytorch.chat_template_kwargs(profile, options.chat_template_kwargs):
        yield from (CHAT_KWARGS, compact_json(kwargs))
    if profile.tool_parser is not None:
        # A parser without the automatic choice does nothing.
        yield from ("--enable-auto-tool-choice", "--tool-call-parser", profile.tool_parser)
    if sampling := {**_sampling(profile), **options.override_generation_config}:
        yield from ("--override-generation-config", compact_json(sampling))
    if profile.speculative is not None:
        yield from ("--speculative-config", compact_json(_drafting(profile.speculative)))


_RANKS: Final = (16, 32, 64, 128, 256, 320, 512)
"""Limits of rank that vLLM takes, from its default up (vllm/config/lora.py, MaxLoRARanks)."""


def _adapters(profile: Profile) -> Iterator[str]:
    if profile.adapters:
        yield from ("--enable-lora", "--lora-modules", *pytorch.adapter_words(profile))
        if (limit := _most_rank(profile)) > _RANKS[0]:
            yield from ("--max-lora-rank", str(limit))


def _most_rank(profile: Profile) -> int:
    """Return the least limit that takes all adapters; the highest where none does."""
    highest = max((adapter.rank or 0 for adapter in profile.adapters), default=0)
    return next((rank for rank in _RANKS if rank >= highest), _RANKS[-1])


def _sampling(profile: Profile) -> Mapping[str, object]:
    """Return the values of ``sampling`` by vLLM's own names."""
    values = ((name, getattr(profile.sampling, key)) for key, name in _SAMPLING.items())
    return {name: value for name, value in values if value is not None}


def _drafting(speculative: Speculative) -> Mapping[str, object]:
    values = {
        "method": used_methods(speculative, METHODS)[0].name,
        "num_speculative_tokens": speculative.tokens,
        "model": speculative.model and (hf_repository(speculative.model) or speculative.model),
        "draft_tensor_parallel_size": speculative.tensor_parallel,
        "kv_cache_dtype": None if speculative.kv is None else KV_TYPES[speculative.kv.k],
        "prompt_lookup_max": speculative.ngram.match,
        "prompt_lookup_min": speculative.ngram.min_match,
    }
    return {name: value for name, value in values.items() if value is not None}


def _ours(profile: Profile) -> Iterator[str]:
    yield from ("--allowed-origins", "[]")
    # Without it no response says how much of its prompt was cached.
    yield from either(("--enable-prompt-tokens-details",), ())
    if profile.endpoint.socket is not None:
        yield from ("--uds", profile.endpoint.socket)
    else:
        yield from ("--host", LOOPBACK, "--port", str(profile.endpoint.port))


# The options of vLLM 0.33 (vllm/entrypoints/common/cli_args.py, vllm/engine/arg_utils.py).
RULES: Final = why.ArgumentRules(
    argparse=True,
    families=why.by_option(
        {
            why.CLIENTS: "--trust-request-",
            why.CORS: "--allow- --allowed-",
            why.ENDPOINTS: "--elastic-ep- --fault-tolerance-",
            why.LISTENER: (
                "--dp-supervisor- --ec- --grpc --kv-events- --kv-transfer- --otlp- --weight-transfer-"
            ),
            why.OTHER_BOXES: "--master- --ray-",
            why.PRIVATE: "--enable-log-",
            why.SHARDS: "--data-parallel- -dp",
            why.TLS: "--ssl-",
        }
    ),
    refused=why.by_option(
        {
            why.CONFIG: "--config --log-config-file --logging-config",
            why.ENDPOINTS: (
                "--enable-elastic-ep --enable-fault-tolerance --enable-scale-out"
                " --profiler-config --tokens-only"
            ),
            why.HOST: "--host",
            why.KEY: "--api-key --hf-token",
            why.LISTENER: "--collect-detailed-traces",
            why.METRICS: "--disable-log-stats",
            why.OTHER_BOXES: "--nnodes -n --node-rank -r",
            why.PORT: "--port --uds",
            why.PREFIX: "--root-path",
            why.PRIVATE: "--uvicorn-log-level",
            why.SHARDS: "--prefill-context-parallel-size -pcp",
            why.TLS: "--enable-ssl-refresh",
            why.TOOLS: "--tool-server",
            "its code could change any answer": "--middleware",
            "requests would read this machine's files": "--allowed-local-media-path",
            "the process would answer no requests": "--headless",
            "workers outside the unit would outlive a stop": "--distributed-executor-backend",
        }
    ),
    keys=TABLE.keys,
)


def _problems(profile: Profile) -> Iterator[Problem]:
    options = options_of(VllmOptions, profile)
    yield from why.argument_problems(profile, RULES)
    yield from pytorch.kv_problems(profile, KV_TYPES, KV_TYPES)
    yield from _dtype_problems(profile, options)
    yield from draft_problems(profile, METHODS, keys=frozenset({"tensor_parallel", "kv"}))
    yield from pytorch.kwargs_problems(profile, options.chat_template_kwargs)
    yield from _sampling_problems(profile, options)
    if ":" in (hf_repository(profile.model) or ""):
        text = "vLLM names no quantisation in a repository: remove what follows the colon"
        yield Problem(where=("model",), text=text)
    yield from pytorch.tool_problems(profile)
    for place, adapter in enumerate(profile.adapters):
        if (adapter.rank or 0) > _RANKS[-1]:
            text = f"vLLM loads no adapter of a rank above {_RANKS[-1]}"
            yield Problem(where=("adapters", place, "rank"), text=text)
    yield from pytorch.budget_problems(profile, options.reasoning_parser)
    yield from pytorch.enough_gpus(
        profile, "vllm", options.tensor_parallel, options.pipeline_parallel
    )


def _dtype_problems(profile: Profile, options: VllmOptions) -> Iterator[Problem]:
    kv = None if profile.kv is None else profile.kv.k
    if kv in _SIXTEEN_BITS and options.dtype not in _SIXTEEN_BITS[kv]:
        wanted = _SIXTEEN_BITS[kv][0]
        text = (
            f'vLLM takes a cache of "{kv}" only for a model that runs in that type: set dtype = "{wanted}" '
            'in [vllm], or kv = "auto"'
        )
        yield Problem(where=("kv",), text=text)


def _sampling_problems(profile: Profile, options: VllmOptions) -> Iterator[Problem]:
    yield from pytorch.sampling_problems(profile, _SAMPLING)
    for name in _sampling(profile).keys() & options.override_generation_config.keys():
        text = f"{name} is also in sampling: keep one of the two"
        yield Problem(where=("vllm", "override_generation_config"), text=text)


_UTILISATION: Final = 0.92
"""Share of each GPU that vLLM takes when the profile does not say
(``CacheConfig.gpu_memory_utilization``; 0.9 up to version 0.16). A share that is too large only
makes a start wait a little longer; one that is too small would admit a start that fails."""


def _memory(profile: Profile) -> MemoryUse:
    options = options_of(VllmOptions, profile)
    workers = pytorch.shards(options.tensor_parallel, options.pipeline_parallel)
    cache_bytes = _declared_cache_bytes(profile, options)
    fraction = _UTILISATION
    if options.gpu_memory_utilization is not None:
        fraction = options.gpu_memory_utilization
    taken = fraction if cache_bytes is None else None
    # The build for CPUs takes the same part of the memory of its NUMA node, and does not start
    # where less is available (vllm/v1/worker/cpu_worker.py).
    on_cpu = profile.gpus == ()
    return MemoryUse(
        gpu_split=pytorch.shard_split(profile, workers),
        vram_fraction=None if on_cpu else taken,
        ram_fraction=taken if on_cpu else None,
        loading=PytorchLoading(
            workers=workers,
            tensor=options.tensor_parallel or 1,
            cache_bytes=cache_bytes,
            offload_bytes=pytorch.offloaded_bytes(options.cpu_offload_gb),
            certain=not options.hf_overrides and pytorch.loads_all(profile, options.load_format),
            converts=options.quantization is not None,
            dtype=options.dtype,
            batch=options.max_batched_tokens or _BATCH,
            block=options.block_size or _BLOCK,
            aligned=_keeps_two_states(options),
            state_dtype=options.mamba_ssm_cache_dtype,
            drafts=pytorch.own_drafts(profile, METHODS),
        ),
    )


_BLOCK: Final = 16
"""Tokens of a page of the cache, where nothing is said (``CacheConfig.DEFAULT_BLOCK_SIZE``)."""
_BATCH: Final = 2048
"""Tokens of one step on a GPU of less than 70 GiB (``EngineArgs.get_batch_defaults``)."""


def _keeps_two_states(options: VllmOptions) -> bool:
    """Tell whether states are kept at the ends of pages, too, for prompts that are cached."""
    if options.mamba_cache_mode is not None:
        return options.mamba_cache_mode == "align"
    return options.prefix_caching is True


def _declared_cache_bytes(profile: Profile, options: VllmOptions) -> int | None:
    """Return the bytes of a worker's cache; None: the utilisation decides, not the profile.

    On a CPU ``VLLM_CPU_KVCACHE_SPACE``, in GiB, goes before the option (vllm/platforms/cpu.py).
    """
    space = profile.env.get(_CPU_CACHE, "") if profile.gpus == () else ""
    if _GIB_COUNT.fullmatch(space):
        return int(space) << 30
    return options.kv_cache_memory_bytes


_TASKS: Final = {
    "classify": Task.CLASSIFY,
    "embed": Task.EMBED,
    "embedding": Task.EMBED,
    "generate": Task.GENERATE,
    "reward": Task.CLASSIFY,
    "score": Task.CLASSIFY,
}
"""Values of vLLM's ``--convert``, and of ``--task`` before 0.10."""
_RUNNERS: Final = {"generate": Task.GENERATE, "pooling": Task.EMBED}
"""Values of vLLM's ``--runner``; a pooling one embeds unless ``--convert`` says otherwise."""


def _task(profile: Profile) -> Task | None:
    values = _values(profile.extra_args)
    converted = _TASKS.get(values.get("--convert", "")) or _TASKS.get(values.get("--task", ""))
    return converted or _RUNNERS.get(values.get("--runner", ""))


def _values(arguments: tuple[str, ...]) -> dict[str, str]:
    """Values of long options, written ``--a b`` or ``--a=b``; of a repeated one the last."""
    found: dict[str, str] = {}
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            found[name.replace("_", "-")] = value if equals else following
    return found


def _model_task(model: Safetensors) -> Task | None:
    return Task.EMBED if model.pools else pytorch.architecture_task(model)


def _reasons(profile: Profile) -> bool | None:
    """Return whether thinking is parsed; None: without a parser it may be part of the answer."""
    return None if options_of(VllmOptions, profile).reasoning_parser is None else True


def _declared(profile: Profile) -> Iterator[DeclaredFact]:
    options = options_of(VllmOptions, profile)
    yield from pytorch.common_facts(
        profile, quantization=options.quantization, chat_template=options.chat_template
    )
    if options.attention_backend is not None:
        backend = options.attention_backend
        yield stated(Topic.FLASH_ATTENTION, "[vllm] attention_backend", backend, backend.upper())


_CACHE_CONFIG: Final = "vllm:cache_config_info"
_CACHE_TYPE: Final = re.compile(r'[{,]cache_dtype="([\w.]{1,40})"')


def _metrics_page(page: str) -> Iterator[Reading]:
    for line in page.splitlines():
        if line.startswith(_CACHE_CONFIG) and (kind := _CACHE_TYPE.search(line)):
            yield spoken(Topic.KV, f"/metrics {_CACHE_CONFIG}", kind[1])


_ENGINE_BEGINS: Final = "engine (v"
_ARGUMENTS_BEGIN: Final = "non-default args: "
_CONFIG_VALUES: Final = (
    (Topic.KV, "kv_cache_dtype", re.compile(r"\bkv_cache_dtype=([\w.]{1,40})"), None),
    (
        Topic.GPU_LAYERS,
        "device_config",
        re.compile(r"\bdevice_config=(\w{1,40})"),
        pytorch.place_words,
    ),
    (
        Topic.QUANTIZATION,
        "quantization",
        re.compile(r"\bquantization=([\w-]{1,40})"),
        pytorch.method_words,
    ),
    (Topic.MODEL, "model", re.compile(r"\bconfig: model='([^']{1,4096})'"), pytorch.model_words),
    (Topic.BUILD, "version", re.compile(r"engine \(v([^)]{1,80})\)"), version_words),
)
"""Words in the line with which an engine core begins (vllm/v1/engine/core.py)."""
_CONTEXT: Final = re.compile(r"\bmax_seq_len=(\d{1,9})\b")
_DRAFTS: Final = re.compile(r"\bspeculative_config=(None|SpeculativeConfig\([^)]{0,4096})")
_DRAFT_MODEL: Final = re.compile(r"\bmodel='([^']{1,4096})'")
_DRAFT_TOKENS: Final = re.compile(r"\bnum_spec_tokens=(\d{1,4})\b")
_SEQUENCES: Final = re.compile(r"'max_num_seqs': (\d{1,6})\b")
_TEMPLATE: Final = re.compile(r"'chat_template': '([^']{1,4096})'")
_THINKING: Final = re.compile(r"'enable_thinking': (True|False)\b")
_ATTENTION: Final = re.compile(r"'attention_backend': (?:'|<\w{1,40}\.)(\w{1,40})")


def _log_facts(lines: Sequence[str]) -> Iterator[Reading]:
    """Yield the facts in the lines with the arguments and the configuration, each of the last start."""
    found: dict[tuple[Topic, str], ReportedFact] = {}
    for line in lines:
        if _ARGUMENTS_BEGIN in line:
            facts = _argument_facts(line.partition(_ARGUMENTS_BEGIN)[2])
        elif _ENGINE_BEGINS in line:
            facts = _config_facts(line)
        else:
            continue
        found |= {(fact.topic, fact.source): fact for fact in facts}
    yield from found.values()


def _argument_facts(arguments: str) -> Iterator[ReportedFact]:
    if sequences := _SEQUENCES.search(arguments):
        yield counted(Topic.SLOTS, "log: max_num_seqs", int(sequences[1]))
    if template := _TEMPLATE.search(arguments):
        yield spoken(Topic.CHAT_TEMPLATE, "log: chat_template", template[1])
    if attention := _ATTENTION.search(arguments):
        word = attention[1]
        yield spoken(Topic.FLASH_ATTENTION, "log: attention_backend", word, word.upper())
    if thinking := _THINKING.search(arguments):
        word = on_off(is_on=thinking[1] == "True")
        yield spoken(Topic.THINKING, "log: default_chat_template_kwargs", word)


def _config_facts(line: str) -> Iterator[ReportedFact]:
    for topic, name, pattern, meaning in _CONFIG_VALUES:
        if (value := pattern.search(line)) and value[1] != "None":
            words_of = meaning or (lambda text: (text,))
            yield spoken(topic, f"log: {name}", value[1], *words_of(value[1]))
    if context := _CONTEXT.search(line):
        yield counted(Topic.CONTEXT, "log: max_seq_len", int(context[1]))
    if drafts := _DRAFTS.search(line):
        is_on = drafts[1] != "None"
        yield spoken(Topic.DRAFTS, "log: speculative_config", on_off(is_on=is_on))
        if model := _DRAFT_MODEL.search(drafts[1]):
            yield spoken(
                Topic.DRAFT_MODEL,
                "log: speculative_config",
                model[1],
                *pytorch.model_words(model[1]),
            )
        if tokens := _DRAFT_TOKENS.search(drafts[1]):
            yield counted(Topic.DRAFT_TOKENS, "log: num_spec_tokens", int(tokens[1]))


ENGINE: Final = Engine(
    name="vllm",
    build_question=distribution_question(
        "vllm",
        "vllm/engine/arg_utils.py",
        # The server's own, which releases have moved: 0.33, 0.32, and up to 0.31.
        "vllm/entrypoints/common/cli_args.py",
        "vllm/entrypoints/launchers/cli_args.py",
        "vllm/entrypoints/openai/cli_args.py",
        "vllm/utils/argparse_utils.py",
    ),
    options=VllmOptions,
    option_table=TABLE,
    invocation=_invocation,
    problems=_problems,
    arguments=RULES,
    weights="safetensors",
    memory=_memory,
    most_rank=_most_rank,
    task=_task,
    model_task=_model_task,
    refused_variables={
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "messages could run code",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": why.LISTENER,
        "VLLM_API_KEY": why.SECRET,
        "VLLM_CONFIG_ROOT": why.CONFIGURATION,
        "VLLM_DO_NOT_TRACK": why.REPORTS,
        "VLLM_HOST_IP": why.LISTENS,
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "the server would answer although its engine has ended",
        "VLLM_LOGGING_CONFIG_PATH": why.CONFIGURATION,
        "VLLM_LOOPBACK_IP": why.LISTENS,
        "VLLM_MODEL_REDIRECT_PATH": why.CONFIGURATION,
        "VLLM_NO_USAGE_STATS": why.REPORTS,
        "VLLM_PORT": why.LISTENS,
        "VLLM_RPC_BASE_PATH": why.LISTENS,
        "VLLM_RUST_FRONTEND_PATH": why.OTHER_PROGRAM,
        "VLLM_SERVER_DEV_MODE": why.ENDPOINTS,
        "VLLM_TRACE_FUNCTION": why.PRIVATE,
        "VLLM_USAGE_STATS_SERVER": why.REPORTS,
        "VLLM_USE_RUST_FRONTEND": why.OTHER_PROGRAM,
    },
    refused_variable_families={
        "VLLM_DEBUG_LOG_": why.PRIVATE,
        "VLLM_DP_": why.SHARDS,
        "VLLM_EC_SIDE_CHANNEL_": why.LISTENER,
        "VLLM_MOONCAKE_": why.LISTENER,
        "VLLM_NIXL_": why.LISTENER,
        "VLLM_P2P_SIDE_CHANNEL_": why.LISTENER,
        "VLLM_RAY_": why.OTHER_BOXES,
    },
    tools=pytorch.parses_tools,
    reasoning=_reasons,
    thinking_parameters=partial(pytorch.budget_parameters, name="thinking_token_budget"),
    declared=_declared,
    self_report=SelfReport(
        pages=(pytorch.MODEL_LIST, ReportPage(path="/metrics", read=_metrics_page)), log=_log_facts
    ),
    metrics=Metrics(
        running=("vllm:num_requests_running",),
        queued=("vllm:num_requests_waiting",),
        kv_cache=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        # vllm/v1/metrics/loggers.py: with one request, the latencies between its tokens add up to
        # its time of decoding, whether each step made one token or several.
        finished=("vllm:request_success_total",),
        prefill_s=("vllm:request_prefill_time_seconds_sum",),
        decode_s=(
            "vllm:request_decode_time_seconds_sum",
            "vllm:inter_token_latency_seconds_sum",
            "vllm:time_per_output_token_seconds_sum",
        ),
        cached_tokens=("vllm:prompt_tokens_cached_total", "vllm:prefix_cache_hits_total"),
        # Until 0.9 the names had gpu_ in them.
        prefix_queries=("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        prefix_hits=("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        drafted_tokens=("vllm:spec_decode_num_draft_tokens_total",),
        accepted_tokens=("vllm:spec_decode_num_accepted_tokens_total",),
    ),
    probing=Probing(version_page=VersionPage(path="/version", key="version")),
    # docs/usage/security.md and vllm/entrypoints/serve, as of November 2026; "inference" shows its
    # configuration and takes tokens without applying its templates.
    admin_paths=frozenset(
        {
            *("inference", "docs", "redoc", "openapi.json"),
            *("sleep", "wake_up", "is_sleeping", "pause", "resume", "is_paused", "abort_requests"),
            *("collective_rpc", "server_info"),
            *("reset_prefix_cache", "reset_mm_cache", "reset_encoder_cache", "reconfigure"),
            *("scale_elastic_ep", "is_scaling_elastic_ep", "get_world_size", "load"),
            *("tokenizer_info", "fault_tolerance"),
        }
    ),
    # Example: (EngineCore pid=7)
    log_prefixes=LogPrefixes(process=r"\(([A-Za-z]\w* (?:rank=\d+ )?pid=\d+)\) ?"),
)
