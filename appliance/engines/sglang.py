"""Engine SGLang, started as ``sglang serve`` or through a Python that has it installed."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
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
    FlagForm,
    ValueKind,
    compact_json,
    flag,
    option_table,
)
from appliance.engines.shared.self_report import (
    PageReader,
    Reading,
    ReportPage,
    SelfReport,
    on_off,
    spoken,
    stated,
    version_words,
)
from appliance.model.engine_build import distribution_question, either
from appliance.model.profile_values import JsonTable
from appliance.model.running_facts import DeclaredFact, Topic
from appliance.model.spec import EngineOptions, Problem, Profile, Speculative
from appliance.model.value_types import Count, Doc, Fraction, Range, Shards, Text, Tokens, Word

# srt/server_args.py, kv_cache_dtype. "auto" takes FP8 from a checkpoint that names it.
KV_TYPES: Final = {
    "auto": "auto",
    "bf16": "bf16",
    "fp8": "fp8_e4m3",
    **{name: name for name in ("fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4", "fp4_mx_block16")},
}
_DRAFT_KV_TYPES: Final = {
    name: word
    for name, word in KV_TYPES.items()
    if word in {"auto", "bf16", "fp8_e4m3", "fp8_e5m2"}
}

# srt/arg_groups/fields/spec.py and speculative_hook.py.
_STANDALONE: Final = DraftMethod(name="STANDALONE", model="required")
METHODS: Final = by_name(
    {
        "mtp": DraftMethod(name="NEXTN", model="optional"),
        "eagle": DraftMethod(name="EAGLE", model="optional"),
        "eagle3": DraftMethod(name="EAGLE3", model="required"),
        "dflash": DraftMethod(name="DFLASH", model="required", counts_tokens=False),
        # Its drafts may be part of the model's own files.
        "dspark": DraftMethod(name="DSPARK", model="optional", counts_tokens=False),
        "standalone": _STANDALONE,
        "draft": _STANDALONE,
        "ngram": DraftMethod(name="NGRAM"),
    }
)


CHAT_KWARGS: Final = "--default-chat-template-kwargs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangOptions(EngineOptions):
    """``[sglang]``: options of SGLang."""

    tensor_parallel: Annotated[
        Shards | None,
        Doc("GPUs over which each layer is split"),
        flag("--tp-size", "--tensor-parallel-size", "--tp"),
    ] = None
    pipeline_parallel: Annotated[
        Shards | None,
        Doc("groups of layers, each on its own GPU"),
        flag("--pp-size", "--pipeline-parallel-size", former=("--pp",)),
    ] = None
    expert_parallel: Annotated[
        Shards | None,
        Doc("GPUs over which experts are split whole"),
        flag("--ep-size", "--expert-parallel-size", "--ep"),
    ] = None
    mem_fraction_static: Annotated[
        Fraction | None,
        Doc("part of each GPU's memory for weights and cache"),
        flag("--mem-fraction-static"),
    ] = None
    max_total_tokens: Annotated[
        Tokens | None, Doc("tokens of the cache"), flag("--max-total-tokens")
    ] = None
    cpu_offload_gb: Annotated[
        Annotated[int, Range(least=0, most=4096)] | None,
        Doc("GiB of weights that stay in host RAM"),
        flag("--cpu-offload-gb"),
    ] = None
    page_size: Annotated[
        Count | None, Doc("tokens of a page of the cache"), flag("--page-size")
    ] = None
    swa_full_tokens_ratio: Annotated[
        Fraction | None,
        Doc("cache of layers with a sliding window, as a part of that of the others"),
        flag("--swa-full-tokens-ratio"),
    ] = None
    chunked_prefill_size: Annotated[
        Annotated[int, Range(least=-1, most=1 << 20)] | None,
        Doc("tokens in a chunk of a prompt; -1: whole prompts"),
        flag("--chunked-prefill-size"),
    ] = None
    max_prefill_tokens: Annotated[
        Count | None, Doc("tokens of all prompts in one step"), flag("--max-prefill-tokens")
    ] = None
    schedule_policy: Annotated[
        Word | None, Doc("order of waiting requests"), flag("--schedule-policy")
    ] = None
    attention_backend: Annotated[
        Word | None, Doc("attention kernels"), flag("--attention-backend")
    ] = None
    moe_runner_backend: Annotated[
        Word | None, Doc("kernels of mixtures of experts"), flag("--moe-runner-backend")
    ] = None
    dtype: Annotated[Word | None, Doc("type of weights and activations"), flag("--dtype")] = None
    quantization: Annotated[
        Word | None,
        Doc("method of quantisation; unset: as the model says"),
        flag("--quantization"),
    ] = None
    load_format: Annotated[
        Word | None, Doc("format and way in which weights are read"), flag("--load-format")
    ] = None
    embedding: Annotated[
        bool, Doc("serve embeddings only"), flag("--is-embedding", form=FlagForm.SWITCH)
    ] = False
    disable_cuda_graph: Annotated[
        bool,
        Doc("run without CUDA graphs"),
        flag("--disable-cuda-graph", form=FlagForm.DERIVED),
    ] = False
    cuda_graph_max_bs: Annotated[
        Count | None,
        Doc("most requests of a step that is captured as a CUDA graph"),
        flag("--cuda-graph-max-bs-decode", former=("--cuda-graph-max-bs",)),
    ] = None
    disable_radix_cache: Annotated[
        bool,
        Doc("keep no cache of prompts between requests"),
        flag("--disable-radix-cache", form=FlagForm.SWITCH),
    ] = False
    disable_overlap_schedule: Annotated[
        bool,
        Doc("plan a step only after the one before it"),
        flag("--disable-overlap-schedule", form=FlagForm.SWITCH),
    ] = False
    trust_remote_code: Annotated[
        bool,
        Doc("run code that comes with the model"),
        flag("--trust-remote-code", form=FlagForm.SWITCH),
    ] = False
    chat_template: Annotated[
        Text | None, Doc("name or path of a chat template"), flag("--chat-template")
    ] = None
    chat_template_kwargs: Annotated[
        JsonTable,
        Doc("variables of the chat template, unless a client sets them"),
        flag(CHAT_KWARGS, form=FlagForm.DERIVED),
    ] = field(default_factory=dict)
    reasoning_parser: Annotated[
        Word | None,
        Doc("parser that separates thinking from the answer"),
        flag("--reasoning-parser"),
    ] = None
    sampling_defaults: Annotated[
        Literal["openai", "model"] | None,
        Doc("whose sampling parameters are the defaults"),
        flag("--sampling-defaults"),
    ] = None


COMMON: Final = (
    ("model", flag("--model-path", "--model", form=FlagForm.DERIVED)),
    ("served", flag("--served-model-name", form=FlagForm.DERIVED)),
    ("adapters", flag("--lora-paths", form=FlagForm.DERIVED)),
    ("adapters", flag("--enable-lora", form=FlagForm.DERIVED)),
    ("adapters", flag("--max-lora-rank", form=FlagForm.DERIVED)),
    ("ctx", flag("--context-length", kind=ValueKind.WHOLE)),
    ("parallel", flag("--max-running-requests", kind=ValueKind.WHOLE)),
    ("kv", flag("--kv-cache-dtype", form=FlagForm.DERIVED)),
    ("thinking.budget", flag("--enable-strict-thinking", form=FlagForm.DERIVED)),
    ("tool_parser", flag("--tool-call-parser")),
    ("speculative.method", flag("--speculative-algorithm", form=FlagForm.DERIVED)),
    (
        "speculative.model",
        flag("--speculative-draft-model-path", "--speculative-draft-model", form=FlagForm.DERIVED),
    ),
    ("speculative.kv", flag("--speculative-draft-kv-cache-dtype", form=FlagForm.DERIVED)),
    (
        "speculative.tokens",
        flag("--speculative-num-steps", form=FlagForm.DERIVED, kind=ValueKind.WHOLE),
    ),
    (
        "speculative.tokens",
        flag("--speculative-eagle-topk", form=FlagForm.DERIVED, kind=ValueKind.WHOLE),
    ),
    (
        "speculative.tokens",
        flag("--speculative-num-draft-tokens", form=FlagForm.DERIVED, kind=ValueKind.WHOLE),
    ),
    (
        "speculative.tokens",
        flag("--speculative-dspark-block-size", form=FlagForm.DERIVED, kind=ValueKind.WHOLE),
    ),
)
TABLE: Final = option_table("sglang", SglangOptions, COMMON)


def _invocation(profile: Profile, context: InvocationContext) -> Invocation:
    options = options_of(SglangOptions, profile)
    return pytorch.invocation(
        profile,
        context,
        (
            *_program(profile.binary),
            "--model-path",
            hf_repository(profile.model) or profile.model,
            *_common(profile, options),
            *TABLE.written(options),
            *_without_graphs(options),
            *profile.extra_args,
            # Without it no response says how much of its prompt was cached.
            *either(("--enable-cache-report",), ()),
            *("--enable-metrics", "--host", LOOPBACK, "--port", str(profile.endpoint.port)),
        ),
        _ours(profile, context),
    )


def _ours(profile: Profile, context: InvocationContext) -> dict[str, str]:
    directory = f"{context.cache_root}/{profile.name}/sglang"
    return {
        # Compiled kernels are kept here; SGLang's default is in the home directory.
        "SGLANG_CACHE_DIR": directory,
        "SGLANG_DG_CACHE_DIR": f"{directory}/deep_gemm",
        "SGLANG_HOST_IP": LOOPBACK,
    }


def _program(binary: str) -> tuple[str, ...]:
    python = binary.rpartition("/")[2].startswith("python")
    return (binary, "-m", "sglang.launch_server") if python else (binary, "serve")


def _common(profile: Profile, options: SglangOptions) -> Iterator[str]:
    yield from ("--served-model-name", profile.models[0])
    if profile.adapters:
        # The rank is read from the adapters themselves.
        yield from ("--enable-lora", "--lora-paths", *pytorch.adapter_words(profile))
    yield from TABLE.written_keys(profile)
    if profile.kv is not None:
        yield from ("--kv-cache-dtype", KV_TYPES[profile.kv.k])
    if kwargs := pytorch.chat_template_kwargs(profile, options.chat_template_kwargs):
        yield from (CHAT_KWARGS, compact_json(kwargs))
    if profile.thinking is not None and profile.thinking.budget_tokens is not None:
        # Without this a request's budget is not enforced (docs: Thinking Budget).
        yield "--enable-strict-thinking"
    if profile.speculative is not None:
        yield from _drafting(profile.speculative)


def _without_graphs(options: SglangOptions) -> Iterator[str]:
    if options.disable_cuda_graph:
        # --disable-cuda-graph is deprecated for these (srt/arg_groups/cuda_graph_hook.py).
        yield from ("--cuda-graph-backend-decode", "disabled")
        yield from ("--cuda-graph-backend-prefill", "disabled")


_WITHOUT_STEPS: Final = frozenset({"DFLASH", "DSPARK", "NGRAM"})
"""Algorithms whose drafts are not one chain of steps."""


def _drafting(speculative: Speculative) -> Iterator[str]:
    algorithm = used_methods(speculative, METHODS)[0].name
    yield from ("--speculative-algorithm", algorithm)
    if speculative.model is not None:
        model = hf_repository(speculative.model) or speculative.model
        yield from ("--speculative-draft-model-path", model)
    if speculative.kv is not None:
        kv = _DRAFT_KV_TYPES[speculative.kv.k]
        yield from ("--speculative-draft-kv-cache-dtype", kv)
    tokens = speculative.tokens
    if tokens is None:
        return
    if algorithm == "DSPARK":
        yield from ("--speculative-dspark-block-size", str(tokens))
        return
    if algorithm not in _WITHOUT_STEPS:
        # One chain of drafts: the engine itself corrects any other number of tokens to this.
        yield from ("--speculative-num-steps", str(tokens), "--speculative-eagle-topk", "1")
    yield from ("--speculative-num-draft-tokens", str(tokens + 1))


# The options of SGLang 0.5.23 (srt/server_args.py, srt/arg_groups/fields).
RULES: Final = why.ArgumentRules(
    argparse=True,
    families=why.by_option(
        {
            why.CLIENTS: "--trust-request-",
            why.LISTENER: (
                "--decoupled-spec- --disaggregation- --encoder- --grpc- --kv-events- --load-publish-"
                " --oltp- --otlp- --remote-instance- --sidecar --smg-"
            ),
            why.PRIVATE: (
                "--debug-tensor-dump- --export-metrics-to-file --hicache-storage- --log-requests"
                " --spec-trace-"
            ),
            why.SHARDS: "--data-parallel- --dp-",
            why.TLS: "--ssl-",
        }
    ),
    refused=why.by_option(
        {
            why.CONFIG: "--config",
            why.HOST: "--host",
            why.KEY: "--admin-api-key --api-key",
            why.LISTENER: (
                "--enable-forward-pass-metrics --enable-trace --engine-info-bootstrap-port"
                " --gated-launch-port --modelexpress-config --nccl-port"
            ),
            why.METRICS: "--enable-metrics",
            why.OTHER_BOXES: "--dist-init-addr --nccl-init-addr --nnodes --node-rank --use-ray",
            why.PORT: "--port",
            why.PREFIX: "--fastapi-root-path",
            why.PRIVATE: (
                "--crash-dump-folder --enable-response-store --file-storage-path --msprobe-dump-config"
            ),
            why.TLS: "--enable-ssl-refresh",
            why.TOOLS: "--tool-server",
            "requests would bring code that the engine runs": "--enable-custom-logit-processor",
            "two servers on one port would take each other's requests": (
                "--enable-http-worker-reuseport"
            ),
        }
    ),
    keys=TABLE.keys,
    former=frozenset({"--oltp-"}),
)


def _problems(profile: Profile) -> Iterator[Problem]:
    options = options_of(SglangOptions, profile)
    yield from why.argument_problems(profile, RULES)
    yield from pytorch.kv_problems(profile, KV_TYPES, _DRAFT_KV_TYPES)
    yield from draft_problems(profile, METHODS, keys=frozenset({"kv"}))
    yield from pytorch.kwargs_problems(profile, options.chat_template_kwargs)
    yield from pytorch.sampling_problems(profile, frozenset())
    yield from pytorch.tool_problems(profile)
    yield from pytorch.budget_problems(profile, options.reasoning_parser)
    yield from pytorch.enough_gpus(
        profile, "sglang", options.tensor_parallel, options.pipeline_parallel
    )
    if profile.endpoint.socket is not None:
        yield Problem(where=("socket",), text="sglang listens on a port only: set port")
    if len(profile.models) > 1:
        yield Problem(where=("served",), text="sglang answers to one name only: keep one")
    if ":" in profile.models[0]:
        text = "sglang takes what follows a colon for an adapter: choose a name without one"
        yield Problem(where=("served",), text=text)


def _memory(profile: Profile) -> MemoryUse:
    options = options_of(SglangOptions, profile)
    workers = pytorch.shards(options.tensor_parallel, options.pipeline_parallel)
    return MemoryUse(
        gpu_split=pytorch.shard_split(profile, workers),
        # The default depends on the GPU; without a value in the profile the share is not known.
        vram_fraction=None if profile.gpus == () else options.mem_fraction_static,
        loading=PytorchLoading(
            workers=workers,
            tensor=options.tensor_parallel or 1,
            offload_bytes=pytorch.offloaded_bytes(options.cpu_offload_gb),
            certain=pytorch.loads_all(profile, options.load_format),
            converts=options.quantization is not None,
            dtype=options.dtype,
            drafts=pytorch.own_drafts(profile, METHODS),
        ),
    )


def _task(profile: Profile) -> Task | None:
    return Task.EMBED if options_of(SglangOptions, profile).embedding else None


def _reasons(profile: Profile) -> bool | None:
    """Return whether thinking is parsed; None: without a parser it may be part of the answer."""
    return None if options_of(SglangOptions, profile).reasoning_parser is None else True


def _adapter_name(profile: Profile, name: str) -> str:
    """Return ``model:adapter`` (srt/entrypoints/openai/serving_base.py, _parse_model_parameter)."""
    return f"{profile.models[0]}:{name}"


def _declared(profile: Profile) -> Iterator[DeclaredFact]:
    options = options_of(SglangOptions, profile)
    yield from pytorch.common_facts(
        profile, quantization=options.quantization, chat_template=options.chat_template
    )
    if options.attention_backend is not None:
        key = "[sglang] attention_backend"
        yield stated(Topic.FLASH_ATTENTION, key, options.attention_backend)


_THINKING: Final = re.compile(r"""["']enable_thinking["']: ?(true|false)""", re.IGNORECASE)
_MOST_KWARGS: Final = 10_000
"""Limit of a text in characters; an object is no larger than its page."""


def _server_info(page: str) -> Iterator[Reading]:
    """Yield the facts in the server's arguments as it has settled them (http_server.py, server_info).

    The page also has keys of the server, so nothing but single members of it is kept.
    """
    reader = PageReader("/server_info", page)
    info = reader.mapping()
    if info is None:
        yield reader.nonsense("JSON object")
        return
    yield from reader.number(Topic.CONTEXT, info, "context_length")
    yield from reader.word(Topic.KV, info, "kv_cache_dtype")
    yield from reader.word(Topic.GPU_LAYERS, info, "device", words=pytorch.place_words)
    yield from reader.word(Topic.MODEL, info, "model_path", words=pytorch.model_words)
    yield from reader.word(Topic.QUANTIZATION, info, "quantization", words=pytorch.method_words)
    yield from reader.word(Topic.CHAT_TEMPLATE, info, "chat_template")
    yield from reader.word(Topic.FLASH_ATTENTION, info, "attention_backend")
    yield from reader.word(Topic.BUILD, info, "version", words=version_words)
    if "speculative_algorithm" in info:
        algorithm = info["speculative_algorithm"]
        word = on_off(is_on=algorithm is not None)
        yield spoken(Topic.DRAFTS, "/server_info speculative_algorithm", word)
        if algorithm not in _WITHOUT_STEPS:
            yield from reader.number(Topic.DRAFT_TOKENS, info, "speculative_num_steps")
    yield from _thinking_fact(info.get("default_chat_template_kwargs"))
    yield from reader.word(
        Topic.DRAFT_MODEL, info, "speculative_draft_model_path", words=pytorch.model_words
    )
    states = info.get("internal_states")
    first = states[0] if isinstance(states, list) and states else None
    if isinstance(first, dict):
        yield from reader.number(Topic.SLOTS, first, "effective_max_running_requests_per_dp")


def _thinking_fact(given: object) -> Iterator[Reading]:
    """Yield whether the template makes the model think, by an object or its text."""
    text = given if isinstance(given, str) else json.dumps(given)
    if found := _THINKING.search(text[:_MOST_KWARGS]):
        word = on_off(is_on=found[1].lower() == "true")
        yield spoken(Topic.THINKING, "/server_info default_chat_template_kwargs", word)


ENGINE: Final = Engine(
    name="sglang",
    build_question=distribution_question(
        # Older releases declare all in the module, SGLang 0.5.23 nearly all in the folder.
        *("sglang", "sglang/srt/server_args.py", "sglang/srt/arg_groups/fields/")
    ),
    options=SglangOptions,
    option_table=TABLE,
    invocation=_invocation,
    problems=_problems,
    arguments=RULES,
    weights="safetensors",
    memory=_memory,
    task=_task,
    model_task=pytorch.architecture_task,
    refused_variables={
        "SGLANG_HOST_IP": why.LISTENS,
        "SGLANG_HTTP_SERVER_APP_PATH": why.OTHER_PROGRAM,
        "SGLANG_PORT": why.LISTENS,
        "SGLANG_RUST_SERVER": why.OTHER_PROGRAM,
    },
    refused_variable_families={"SGLANG_GRPC_": why.LISTENER},
    tools=pytorch.parses_tools,
    reasoning=_reasons,
    thinking_parameters=partial(pytorch.budget_parameters, name="custom_params.thinking_budget"),
    adapter_name=_adapter_name,
    declared=_declared,
    self_report=SelfReport(
        pages=(pytorch.MODEL_LIST, ReportPage(path="/server_info", read=_server_info))
    ),
    metrics=Metrics(
        running=("sglang:num_running_reqs",),
        queued=("sglang:num_queue_reqs",),
        kv_cache=("sglang:token_usage",),
        # srt/observability/metrics_collector.py: no metric has the time of prefill alone; the time
        # to the first token contains the work of the tokenizer, too.
        finished=("sglang:num_requests_total",),
        prefill_s=("sglang:time_to_first_token_seconds_sum",),
        decode_s=("sglang:inter_token_latency_seconds_sum",),
        cached_tokens=("sglang:cached_tokens_total",),
        prefix_queries=("sglang:prompt_tokens_total",),
        prefix_hits=("sglang:cached_tokens_total",),
        verify_steps=("sglang:spec_verify_calls_total",),
    ),
    probing=Probing(version_page=VersionPage(path="/server_info", key="version")),
    # srt/entrypoints/http_server.py, as of November 2026.
    admin_paths=frozenset(
        {
            *("flush_cache", "freeze_gc", "slow_down", "configure_logging", "set_trace_level"),
            *("abort_request", "pause_generation", "continue_generation", "get_server_info"),
            *("set_internal_state", "get_internal_state", "get_load", "loads", "dumper"),
            *("pd_role_switch", "open_session", "close_session"),
            *("add_external_corpus", "remove_external_corpus", "list_external_corpora"),
        }
    ),
    # Example: [2026-08-02 10:11:12 TP0]
    log_prefixes=LogPrefixes(stamp=r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[^]]{0,40}\] ?"),
)
