"""vLLM, started as ``vllm serve``."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from appliance.domain.problems import Problem
from appliance.domain.spec import Profile, Thinking, VllmOptions
from appliance.engines import refused_arguments as why
from appliance.engines.rendering import (
    LOOPBACK,
    Launch,
    LaunchContext,
    compact_json,
    environment,
    hf_repository,
    hf_variables,
    switch,
    temporary_directory,
    torch_variables,
    words,
)
from appliance.engines.sharding import enough_gpus, one_kv_type

# A sixteen-bit cache takes the model's own type: vLLM calls that auto.
KV_TYPES: Final = {
    "auto": "auto",
    "bf16": "auto",
    "f16": "auto",
    "fp8": "fp8",
    "fp8_e4m3": "fp8_e4m3",
    "fp8_e5m2": "fp8_e5m2",
}
_OURS: Final = {
    "VLLM_HOST_IP": LOOPBACK,
    "VLLM_NO_USAGE_STATS": "1",
    # Its sockets: in TMPDIR their paths would exceed the 107 bytes that a socket's may have.
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
_CHAT_KWARGS: Final = "--default-chat-template-kwargs"


def render(profile: Profile, options: VllmOptions, context: LaunchContext) -> Launch:
    """The launch of a vLLM profile."""
    return Launch(
        argv=(
            profile.binary,
            "serve",
            hf_repository(profile.model) or profile.model,
            *_common(profile),
            *_table(options),
            *profile.extra_args,
            *_ours(profile),
        ),
        environment=environment(
            profile,
            context,
            hf_variables(profile, context),
            torch_variables(profile, context),
            _OURS | (_ON_CPU if profile.gpus == () else {}),
        ),
        health_path="/health",
        temporary=temporary_directory(profile, context),
    )


def _common(profile: Profile) -> Iterator[str]:
    yield from ("--served-model-name", *profile.models)
    yield from words("--max-model-len", profile.ctx)
    yield from words("--max-num-seqs", profile.parallel)
    if profile.kv is not None:
        yield from ("--kv-cache-dtype", KV_TYPES[profile.kv.k])
    if profile.thinking is not None:
        enabled = profile.thinking is Thinking.ON
        yield from (_CHAT_KWARGS, compact_json({"enable_thinking": enabled}))
    if profile.tool_parser is not None:
        # A parser without the automatic choice does nothing.
        yield from ("--enable-auto-tool-choice", "--tool-call-parser", profile.tool_parser)
    if profile.speculative is not None:
        drafting = {
            "method": profile.speculative.method,
            "num_speculative_tokens": profile.speculative.tokens,
        }
        yield from ("--speculative-config", compact_json(drafting))


def _table(options: VllmOptions) -> Iterator[str]:
    yield from words("--tensor-parallel-size", options.tensor_parallel)
    yield from words("--pipeline-parallel-size", options.pipeline_parallel)
    yield from words("--gpu-memory-utilization", options.gpu_memory_utilization)
    yield from words("--kv-cache-memory-bytes", options.kv_cache_memory_bytes)
    yield from words("--dtype", options.dtype)
    yield from words("--quantization", options.quantization)
    yield from words("--max-num-batched-tokens", options.max_batched_tokens)
    yield from words("--chat-template", options.chat_template)
    yield from words("--reasoning-parser", options.reasoning_parser)
    yield from _either("enable-prefix-caching", options.prefix_caching)
    yield from _either("enable-chunked-prefill", options.chunked_prefill)
    yield from switch("--enforce-eager", on=options.enforce_eager)
    yield from switch("--disable-custom-all-reduce", on=options.disable_custom_all_reduce)
    yield from switch("--trust-remote-code", on=options.trust_remote_code)


def _either(name: str, wanted: bool | None) -> Iterator[str]:  # noqa: FBT001 - a value
    if wanted is not None:
        yield f"--{name}" if wanted else f"--no-{name}"


def _ours(profile: Profile) -> Iterator[str]:
    yield from ("--allowed-origins", "[]")
    if profile.endpoint.socket is not None:
        yield from ("--uds", profile.endpoint.socket)
    else:
        yield from ("--host", LOOPBACK, "--port", str(profile.endpoint.port))


def declared_cache_bytes(profile: Profile, options: VllmOptions) -> int | None:
    """A worker's cache, where the profile says how large it is; None: what the utilisation leaves.

    On a CPU ``VLLM_CPU_KVCACHE_SPACE``, in GiB, goes before the option (vllm/platforms/cpu.py).
    """
    space = profile.env.get(_CPU_CACHE, "") if profile.gpus == () else ""
    if _GIB_COUNT.fullmatch(space):
        return int(space) << 30
    return options.kv_cache_memory_bytes


# The options of vLLM 0.32 (vllm/entrypoints/launchers/cli_args.py, vllm/engine/arg_utils.py).
RULES: Final = why.ArgumentRules(
    argparse=True,
    families={
        "--allow-": why.CORS,
        "--allowed-": why.CORS,
        "--data-parallel-": why.SHARDS,
        "-dp": why.SHARDS,
        "--dp-supervisor-": why.LISTENER,
        "--ec-": why.LISTENER,
        "--elastic-ep-": why.ENDPOINTS,
        "--enable-log-": why.PRIVATE,
        "--fault-tolerance-": why.ENDPOINTS,
        "--grpc": why.LISTENER,
        "--kv-events-": why.LISTENER,
        "--kv-transfer-": why.LISTENER,
        "--master-": why.OTHER_BOXES,
        "--otlp-": why.LISTENER,
        "--ray-": why.OTHER_BOXES,
        "--ssl-": why.TLS,
        "--trust-request-": why.CLIENTS,
        "--weight-transfer-": why.LISTENER,
    },
    refused={
        "--allowed-local-media-path": "requests would read this machine's files",
        "--api-key": why.KEY,
        "--collect-detailed-traces": why.LISTENER,
        "--config": why.CONFIG,
        "--disable-log-stats": why.METRICS,
        "--distributed-executor-backend": "workers outside the unit would outlive a stop",
        "--enable-elastic-ep": why.ENDPOINTS,
        "--enable-fault-tolerance": why.ENDPOINTS,
        "--enable-scale-out": why.ENDPOINTS,
        "--enable-ssl-refresh": why.TLS,
        "--fd": why.LISTENER,
        "--headless": "the process would serve nobody",
        "--hf-token": why.KEY,
        "--host": why.HOST,
        "-H": why.HOST,
        "--log-config-file": why.CONFIG,
        "--logging-config": why.CONFIG,
        "--middleware": "it changes what the server answers",
        "--nnodes": why.OTHER_BOXES,
        "-n": why.OTHER_BOXES,
        "--node-rank": why.OTHER_BOXES,
        "-r": why.OTHER_BOXES,
        "--port": why.PORT,
        "--prefill-context-parallel-size": why.SHARDS,
        "-pcp": why.SHARDS,
        "--profiler-config": why.ENDPOINTS,
        "--root-path": why.PREFIX,
        "--tokens-only": why.ENDPOINTS,
        "--tool-server": why.TOOLS,
        "--uds": why.PORT,
        "--uvicorn-log-level": why.PRIVATE,
    },
    keys={
        "--chat-template": "[vllm] chat_template",
        "--device-ids": "gpus",
        "--device-memory-utilization": "[vllm] gpu_memory_utilization",
        "--disable-custom-all-reduce": "[vllm] disable_custom_all_reduce",
        "--dtype": "[vllm] dtype",
        "--enable-auto-tool-choice": "tool_parser",
        "--enable-chunked-prefill": "[vllm] chunked_prefill",
        "--enable-prefix-caching": "[vllm] prefix_caching",
        "--enforce-eager": "[vllm] enforce_eager",
        "--gpu-memory-utilization": "[vllm] gpu_memory_utilization",
        "--kv-cache-dtype": "kv",
        "--kv-cache-memory-bytes": "[vllm] kv_cache_memory_bytes",
        "--max-model-len": "ctx",
        "--max-num-batched-tokens": "[vllm] max_batched_tokens",
        "--max-num-seqs": "parallel",
        "--model": "model",
        "--pipeline-parallel-size": "[vllm] pipeline_parallel",
        "-pp": "[vllm] pipeline_parallel",
        "--quantization": "[vllm] quantization",
        "-q": "[vllm] quantization",
        "--reasoning-parser": "[vllm] reasoning_parser",
        "--served-model-name": "served",
        "--spec-method": "speculative",
        "--spec-model": "speculative",
        "--spec-tokens": "speculative",
        "--speculative-config": "speculative",
        "-sc": "speculative",
        "--tensor-parallel-size": "[vllm] tensor_parallel",
        "-tp": "[vllm] tensor_parallel",
        "--tool-call-parser": "tool_parser",
        "--trust-remote-code": "[vllm] trust_remote_code",
    },
)


def problems(profile: Profile, options: VllmOptions) -> tuple[Problem, ...]:
    """What vLLM cannot do, or must not be asked to."""
    rules = RULES
    if profile.thinking is not None:
        rules = replace(RULES, keys={**RULES.keys, _CHAT_KWARGS: "thinking"})
    return (*why.argument_problems(profile, rules), *_problems(profile, options))


def _problems(profile: Profile, options: VllmOptions) -> Iterator[Problem]:
    yield from one_kv_type(profile, "vllm", KV_TYPES)
    if ":" in (hf_repository(profile.model) or ""):
        text = "vLLM names no quantisation in a repository: remove what follows the colon"
        yield Problem(where=("model",), text=text)
    yield from enough_gpus(profile, "vllm", options.tensor_parallel, options.pipeline_parallel)
