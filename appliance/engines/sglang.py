"""SGLang, started as ``sglang serve``, or through a Python that has it."""

from collections.abc import Iterator
from typing import Final

from appliance.domain.problems import Problem
from appliance.domain.spec import Profile, SglangOptions
from appliance.engines import refused_arguments as why
from appliance.engines.rendering import (
    LOOPBACK,
    Launch,
    LaunchContext,
    environment,
    hf_repository,
    hf_variables,
    switch,
    temporary_directory,
    torch_variables,
    words,
)
from appliance.engines.sharding import enough_gpus, one_kv_type

KV_TYPES: Final = {
    "auto": "auto",
    "bf16": "bf16",
    "f16": "auto",
    "fp8": "fp8_e4m3",
    "fp8_e4m3": "fp8_e4m3",
    "fp8_e5m2": "fp8_e5m2",
}
_ALGORITHMS: Final = {"eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "NEXTN", "ngram": "NGRAM"}


def render(profile: Profile, options: SglangOptions, context: LaunchContext) -> Launch:
    """The launch of an SGLang profile."""
    return Launch(
        argv=(
            *_program(profile.binary),
            "--model-path",
            hf_repository(profile.model) or profile.model,
            *_common(profile),
            *_table(options),
            *profile.extra_args,
            *("--enable-metrics", "--host", LOOPBACK, "--port", str(profile.endpoint.port)),
        ),
        environment=environment(
            profile,
            context,
            hf_variables(profile, context),
            torch_variables(profile, context),
            _ours(profile, context),
        ),
        health_path="/health",
        temporary=temporary_directory(profile, context),
    )


def _ours(profile: Profile, context: LaunchContext) -> dict[str, str]:
    directory = f"{context.cache_root}/{profile.name}/sglang"
    return {
        # Kernels compiled once are kept; in the home otherwise.
        "SGLANG_CACHE_DIR": directory,
        "SGLANG_DG_CACHE_DIR": f"{directory}/deep_gemm",
        "SGLANG_HOST_IP": LOOPBACK,
    }


def _program(binary: str) -> tuple[str, ...]:
    python = binary.rpartition("/")[2].startswith("python")
    return (binary, "-m", "sglang.launch_server") if python else (binary, "serve")


def _common(profile: Profile) -> Iterator[str]:
    yield from ("--served-model-name", profile.models[0])
    yield from words("--context-length", profile.ctx)
    yield from words("--max-running-requests", profile.parallel)
    if profile.kv is not None:
        yield from ("--kv-cache-dtype", KV_TYPES[profile.kv.k])
    yield from words("--tool-call-parser", profile.tool_parser)
    if profile.speculative is not None:
        steps = profile.speculative.tokens
        yield from ("--speculative-algorithm", _ALGORITHMS[profile.speculative.method])
        yield from ("--speculative-num-steps", str(steps), "--speculative-eagle-topk", "1")
        # One chain of drafts: the engine itself corrects any other number to this.
        yield from ("--speculative-num-draft-tokens", str(steps + 1))


def _table(options: SglangOptions) -> Iterator[str]:
    yield from words("--tp-size", options.tensor_parallel)
    yield from words("--pp-size", options.pipeline_parallel)
    yield from words("--mem-fraction-static", options.mem_fraction_static)
    yield from words("--chunked-prefill-size", options.chunked_prefill_size)
    yield from words("--attention-backend", options.attention_backend)
    yield from words("--dtype", options.dtype)
    yield from words("--quantization", options.quantization)
    yield from words("--chat-template", options.chat_template)
    yield from words("--reasoning-parser", options.reasoning_parser)
    yield from switch("--disable-cuda-graph", on=options.disable_cuda_graph)
    yield from switch("--trust-remote-code", on=options.trust_remote_code)


RULES: Final = why.ArgumentRules(
    argparse=True,
    families={
        "--data-parallel-": why.SHARDS,
        "--debug-tensor-dump-": why.PRIVATE,
        "--disaggregation-": why.LISTENER,
        "--dp-": why.SHARDS,
        "--encoder-": why.LISTENER,
        "--export-metrics-to-file": why.PRIVATE,
        "--grpc-": why.LISTENER,
        "--hicache-storage-": why.PRIVATE,
        "--kv-events-": why.LISTENER,
        "--log-requests": why.PRIVATE,
        "--oltp-": why.LISTENER,
        "--otlp-": why.LISTENER,
        "--remote-instance-": why.LISTENER,
        "--smg-grpc-": why.LISTENER,
        "--ssl-": why.TLS,
    },
    refused={
        "--admin-api-key": why.KEY,
        "--api-key": why.KEY,
        "--config": why.CONFIG,
        "--crash-dump-folder": why.PRIVATE,
        "--dist-init-addr": why.OTHER_BOXES,
        "--enable-metrics": why.METRICS,
        "--enable-trace": why.LISTENER,
        "--fastapi-root-path": why.PREFIX,
        "--host": why.HOST,
        "-H": why.HOST,
        "--nccl-init-addr": why.OTHER_BOXES,
        "--nccl-port": why.LISTENER,
        "--nnodes": why.OTHER_BOXES,
        "--node-rank": why.OTHER_BOXES,
        "--port": why.PORT,
        "--tool-server": why.TOOLS,
    },
    keys={
        "--attention-backend": "[sglang] attention_backend",
        "--chat-template": "[sglang] chat_template",
        "--chunked-prefill-size": "[sglang] chunked_prefill_size",
        "--context-length": "ctx",
        "--disable-cuda-graph": "[sglang] disable_cuda_graph",
        "--dtype": "[sglang] dtype",
        "--kv-cache-dtype": "kv",
        "--max-running-requests": "parallel",
        "--mem-fraction-static": "[sglang] mem_fraction_static",
        "--model": "model",
        "--model-path": "model",
        "--pipeline-parallel-size": "[sglang] pipeline_parallel",
        "--pp-size": "[sglang] pipeline_parallel",
        "--quantization": "[sglang] quantization",
        "--reasoning-parser": "[sglang] reasoning_parser",
        "--served-model-name": "served",
        "--speculative-algorithm": "speculative",
        "--speculative-num-draft-tokens": "speculative",
        "--speculative-num-steps": "speculative",
        "--tensor-parallel-size": "[sglang] tensor_parallel",
        "--tool-call-parser": "tool_parser",
        "--tp-size": "[sglang] tensor_parallel",
        "--trust-remote-code": "[sglang] trust_remote_code",
    },
)


def problems(profile: Profile, options: SglangOptions) -> tuple[Problem, ...]:
    """What SGLang cannot do, or must not be asked to."""
    return (*why.argument_problems(profile, RULES), *_problems(profile, options))


def _problems(profile: Profile, options: SglangOptions) -> Iterator[Problem]:
    yield from one_kv_type(profile, "sglang", KV_TYPES)
    yield from enough_gpus(profile, "sglang", options.tensor_parallel, options.pipeline_parallel)
    if profile.thinking is not None:
        text = "sglang has no switch for it on the server: remove thinking"
        yield Problem(where=("thinking",), text=text)
    if profile.endpoint.socket is not None:
        yield Problem(where=("socket",), text="sglang listens on a port only: set port")
    if len(profile.models) > 1:
        yield Problem(where=("served",), text="sglang answers to one name only: keep one")
    if profile.speculative is not None and profile.speculative.method not in _ALGORITHMS:
        text = f"sglang knows the methods {', '.join(_ALGORITHMS)}"
        yield Problem(where=("speculative", "method"), text=text)
