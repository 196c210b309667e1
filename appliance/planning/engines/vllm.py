"""vLLM, started as ``vllm serve``."""

from collections.abc import Iterator
from typing import Final

from appliance.domain.spec import Profile, Thinking, VllmOptions
from appliance.planning.engines import arguments as why
from appliance.planning.engines.rendering import (
    LOOPBACK,
    Launch,
    LaunchContext,
    compact_json,
    environment,
    hf_repository,
    hf_variables,
    switch,
    torch_variables,
    words,
)
from appliance.planning.problems import Problem

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
}
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
            _OURS,
        ),
        health_path="/health",
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


RULES: Final = why.ArgumentRules(
    abbreviates=True,
    refused={
        "--allow-credentials": why.CORS,
        "--allowed-headers": why.CORS,
        "--allowed-local-media-path": "requests would read this machine's files",
        "--allowed-methods": why.CORS,
        "--allowed-origins": why.CORS,
        "--api-key": why.KEY,
        "--config": why.CONFIG,
        "--data-parallel-address": why.LISTENER,
        "-dpa": why.LISTENER,
        "--data-parallel-rpc-port": why.LISTENER,
        "-dpp": why.LISTENER,
        "--data-parallel-supervisor-port": why.LISTENER,
        "--disable-log-stats": why.METRICS,
        "--distributed-executor-backend": "workers outside the unit would outlive a stop",
        "--ec-transfer-config": why.LISTENER,
        "--enable-log-outputs": why.PRIVATE,
        "--enable-log-requests": why.PRIVATE,
        "--enable-ssl-refresh": why.TLS,
        "--fd": why.LISTENER,
        "--grpc": why.LISTENER,
        "--headless": "the process would serve nobody",
        "--hf-token": why.KEY,
        "--host": why.HOST,
        "-H": why.HOST,
        "--kv-events-config": why.LISTENER,
        "--kv-transfer-config": why.LISTENER,
        "--master-addr": why.LISTENER,
        "--master-port": why.LISTENER,
        "--middleware": "it changes what the server answers",
        "--nnodes": why.LISTENER,
        "--port": why.PORT,
        "--root-path": why.PREFIX,
        "--ssl-ca-certs": why.TLS,
        "--ssl-cert-reqs": why.TLS,
        "--ssl-certfile": why.TLS,
        "--ssl-ciphers": why.TLS,
        "--ssl-keyfile": why.TLS,
        "--tool-server": why.TOOLS,
        "--uds": why.PORT,
    },
    keys={
        "--chat-template": "[vllm] chat_template",
        "--disable-custom-all-reduce": "[vllm] disable_custom_all_reduce",
        "--dtype": "[vllm] dtype",
        "--enable-auto-tool-choice": "tool_parser",
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
        "--speculative-config": "speculative",
        "--tensor-parallel-size": "[vllm] tensor_parallel",
        "-tp": "[vllm] tensor_parallel",
        "--tool-call-parser": "tool_parser",
        "--trust-remote-code": "[vllm] trust_remote_code",
    },
)


def problems(profile: Profile, options: VllmOptions) -> tuple[Problem, ...]:
    """What vLLM cannot do, or must not be asked to."""
    return (*why.argument_problems(profile, RULES), *_problems(profile, options))


def _problems(profile: Profile, options: VllmOptions) -> Iterator[Problem]:
    yield from one_kv_type(profile, "vllm", KV_TYPES)
    if profile.thinking is not None:
        for place, argument in enumerate(profile.extra_args):
            if argument.replace("_", "-").startswith(_CHAT_KWARGS):
                text = f'"{_CHAT_KWARGS}" is written from the key thinking: remove one of them'
                yield Problem(where=("extra_args", place), text=text)
    if ":" in (hf_repository(profile.model) or ""):
        text = "vLLM names no quantisation in a repository: remove what follows the colon"
        yield Problem(where=("model",), text=text)
    yield from enough_gpus(profile, "vllm", options.tensor_parallel, options.pipeline_parallel)


def one_kv_type(profile: Profile, engine: str, known: dict[str, str]) -> Iterator[Problem]:
    """Problems of ``kv`` for an engine with one type for keys and values."""
    if profile.kv is None:
        return
    if profile.kv.k != profile.kv.v:
        text = f"{engine} has one type for keys and values: write kv as one word"
        yield Problem(where=("kv",), text=text)
    elif profile.kv.k not in known:
        text = f'kv "{profile.kv.k}" is unknown to {engine}: use one of {", ".join(known)}'
        yield Problem(where=("kv",), text=text)


def enough_gpus(
    profile: Profile, table: str, tensor: int | None, pipeline: int | None
) -> Iterator[Problem]:
    """The problem of a model split over more GPUs than the profile claims."""
    if profile.gpus == "all":
        return
    shards = (tensor or 1) * (pipeline or 1)
    if profile.gpus and shards > len(profile.gpus):
        text = f"the model is split over {shards} GPUs, the profile claims {len(profile.gpus)}"
        yield Problem(where=(table, "tensor_parallel"), text=text)
