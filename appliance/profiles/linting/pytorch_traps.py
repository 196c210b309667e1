"""Traps of vLLM and SGLang, which run PyTorch."""

from typing import Final

from appliance.engines.sglang import SglangOptions
from appliance.engines.shared.engine import options_of
from appliance.engines.shared.pytorch import shards
from appliance.engines.vllm import VllmOptions
from appliance.model.spec import Profile
from appliance.model.trap_names import TrapName
from appliance.profiles.linting.trap import (
    BENCHMARK,
    FIELD,
    GpuFacts,
    LintFacts,
    Trap,
    is_consumer_blackwell,
    on_capability,
)

_HIGH_SHARE: Final = 0.95
_FIRST_WITH_FP8: Final = (8, 9)
"""Compute capability from which GPUs compute in FP8 (Ada)."""
_WITHOUT_ALL_REDUCE: Final = (8, 6)
_THINKING_FAMILIES: Final = frozenset(
    {"qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "glm4_moe", "glm4_moe_lite"}
)
"""Families whose models think unless a request or an option turns it off."""
_ATOMIC_ADD: Final = "VLLM_MARLIN_USE_ATOMIC_ADD"
_P2P_OFF: Final = "NCCL_P2P_DISABLE"
_YES: Final = frozenset({"1", "true", "yes", "on", "t", "y"})


def _options(profile: Profile) -> VllmOptions | SglangOptions:
    """Return the options of an engine that runs PyTorch."""
    if isinstance(profile.options, VllmOptions):
        return profile.options
    return options_of(SglangOptions, profile)


def _workers(profile: Profile) -> int:
    options = _options(profile)
    return shards(options.tensor_parallel, options.pipeline_parallel)


def _tensor(profile: Profile) -> int:
    return _options(profile).tensor_parallel or 1


def _eager(facts: LintFacts) -> str | None:
    if facts.profile.gpus == ():
        return None
    options = facts.profile.options
    if isinstance(options, VllmOptions):
        return "enforce_eager is true" if options.enforce_eager else None
    graphs_off = options_of(SglangOptions, facts.profile).disable_cuda_graph
    return "disable_cuda_graph is true" if graphs_off else None


def _high_share(facts: LintFacts) -> str | None:
    options = facts.profile.options
    if facts.profile.gpus == ():
        return None
    if isinstance(options, VllmOptions):
        if options.kv_cache_memory_bytes is not None:
            return None
        key, share = "gpu_memory_utilization", options.gpu_memory_utilization
    else:
        key, share = (
            "mem_fraction_static",
            options_of(SglangOptions, facts.profile).mem_fraction_static,
        )
    return f"{key} is {share:g}" if share is not None and share >= _HIGH_SHARE else None


def _custom_all_reduce(facts: LintFacts) -> str | None:
    options = options_of(VllmOptions, facts.profile)
    tensor = _tensor(facts.profile)
    if tensor < 2 or options.disable_custom_all_reduce:  # noqa: PLR2004 - one worker reduces nothing
        return None
    return f"tensor_parallel is {tensor}, disable_custom_all_reduce is unset"


def _without_p2p(facts: LintFacts) -> str | None:
    value = facts.profile.env.get(_P2P_OFF, "")
    if value.lower() not in _YES or _tensor(facts.profile) < 2:  # noqa: PLR2004
        return None
    return f'{_P2P_OFF} is "{value}"'


def _with_nvlink(facts: LintFacts, gpus: GpuFacts) -> str | None:
    linked = [gpu for gpu in gpus.used_by(facts.applied) if gpu.nvlinks]
    return f"GPU {linked[0].index} has {linked[0].nvlinks} NVLinks" if linked else None


def _reasoning_parser(facts: LintFacts) -> str | None:
    options, thinking = _options(facts.profile), facts.profile.thinking
    if options.reasoning_parser is not None:
        return None
    if thinking is not None:
        return "thinking is on" if thinking.on else None
    family = "" if facts.traits is None else facts.traits.family
    return f"{family} models think, thinking is unset" if family in _THINKING_FAMILIES else None


def _parser_without_thinking(facts: LintFacts) -> str | None:
    parser, thinking = (
        options_of(VllmOptions, facts.profile).reasoning_parser,
        facts.profile.thinking,
    )
    if parser is None or thinking is None or thinking.on:
        return None
    return f"thinking is off, reasoning_parser is {parser}"


def _parallel_unset(facts: LintFacts) -> str | None:
    if facts.profile.parallel is not None or facts.traits is None or not facts.traits.is_hybrid:
        return None
    return f"{facts.traits.family or 'the model'} has layers with a state, parallel is unset"


def _quantised_as(facts: LintFacts, method: str) -> str | None:
    given = _options(facts.profile).quantization
    if given is not None:
        return f"quantization is {given}" if given == method else None
    is_so = facts.traits is not None and facts.traits.quantisation == method
    return f"the model's weights are {method.upper()}" if is_so else None


def _fp8_cache(facts: LintFacts) -> str | None:
    kv, traits = facts.profile.kv, facts.traits
    if traits is None or not traits.cache_type.startswith("fp8"):
        return None
    if kv is not None and kv.k != "auto":
        return None
    return f"kv is {'unset' if kv is None else 'auto'}, the checkpoint names {traits.cache_type}"


def _atomic_add(facts: LintFacts) -> str | None:
    if facts.profile.gpus == () or _ATOMIC_ADD in facts.profile.env:
        return None
    return _quantised_as(facts, "auto-round")


def _few_workers(facts: LintFacts) -> str | None:
    workers = _workers(facts.profile)
    gpus = facts.profile.gpus
    if facts.profile.shared or gpus == () or (gpus != "all" and len(gpus) <= workers):
        return None
    return f"the model is split over {workers}"


def _more_gpus(facts: LintFacts, gpus: GpuFacts) -> str | None:
    count = len(gpus.used_by(facts.applied))
    return f"{count} GPUs are claimed" if count > _workers(facts.profile) else None


_VLLM: Final = (VllmOptions,)
_BOTH: Final = (VllmOptions, SglangOptions)

PYTORCH_TRAPS: Final = (
    Trap(
        name=TrapName.EAGER_MODE,
        statement="without CUDA graphs each token costs about twice the time",
        keys=("enforce_eager", "disable_cuda_graph"),
        advice="remove it; where memory is short, lower max_cudagraph_capture_size or ctx",
        source=f"{BENCHMARK}: 31 tokens a second with it, 65 without",
        checked="2026-11-25",
        options=_BOTH,
        finds=_eager,
    ),
    Trap(
        name=TrapName.MEMORY_SHARE,
        statement="so large a share leaves no room for CUDA's own memory, graphs and what else uses the card:"
        " starts run out of memory, or wait for memory that never comes",
        keys=("gpu_memory_utilization", "mem_fraction_static"),
        advice="set 0.90 to 0.92, or kv_cache_memory_bytes",
        source=f"{BENCHMARK}, 0.95 on one card; vLLM's own default is 0.92",
        checked="2026-11-25",
        options=_BOTH,
        finds=_high_share,
    ),
    Trap(
        name=TrapName.CUSTOM_ALL_REDUCE,
        statement="vLLM's own all-reduce crashes, or returns wrong sums, on GPUs of compute capability 8.6",
        keys=("disable_custom_all_reduce",),
        advice="set disable_custom_all_reduce = true",
        source=f"{BENCHMARK}; noonghunna/club-3090 issue #922; elsewhere vLLM tests the links itself (_can_p2p)",
        checked="2026-11-25",
        options=_VLLM,
        finds=_custom_all_reduce,
        on_gpus=on_capability(lambda capability: capability == _WITHOUT_ALL_REDUCE),
    ),
    Trap(
        name=TrapName.NCCL_P2P_OFF,
        statement="NCCL goes through host memory although the GPUs have NVLink: 4 to 10 % slower",
        keys=("env.NCCL_P2P_DISABLE", "tensor_parallel"),
        advice="remove NCCL_P2P_DISABLE",
        source=f"{BENCHMARK}: 169.7 tokens a second with NVLink, 163.5 through PCIe, 399 and 360 with four requests",
        checked="2026-11-25",
        options=_BOTH,
        finds=_without_p2p,
        on_gpus=_with_nvlink,
    ),
    Trap(
        name=TrapName.REASONING_PARSER,
        statement="without a reasoning parser the thinking is part of the answer, and tool calls and JSON in it break",
        keys=("reasoning_parser", "thinking"),
        advice='set reasoning_parser, such as "qwen3", or thinking = "off"',
        source=f"{FIELD}: 38 % of structured answers malformed, none with thinking off; vLLM and SGLang --reasoning-parser",
        checked="2026-11-25",
        options=_BOTH,
        finds=_reasoning_parser,
    ),
    Trap(
        name=TrapName.PARSER_WITHOUT_THINKING,
        statement="vLLM holds answers to a JSON schema, and to a required tool, only after the end of a thought,"
        " for which many a parser waits in vain: clients get free text",
        keys=("reasoning_parser", "thinking"),
        advice="remove reasoning_parser: without thoughts there is nothing to part",
        source="vLLM issue #27447, pull requests #18879 and #52430; a comparison with vLLM itself, November 2026; the"
        " parser qwen3 of 0.32 holds a schema",
        checked="2026-11-28",
        options=_VLLM,
        finds=_parser_without_thinking,
    ),
    Trap(
        name=TrapName.PARALLEL_UNSET,
        statement="vLLM plans for 256 requests, each with a state of its own in a hybrid model: too much for"
        " GPUs of 16 and 24 GB",
        keys=("parallel",),
        advice="set parallel, to 2 for instance",
        source="vLLM 0.33 (EngineArgs.get_batch_defaults); 53 published compose files use 2",
        checked="2026-11-25",
        options=_VLLM,
        finds=_parallel_unset,
    ),
    Trap(
        name=TrapName.FP8_EMULATED,
        statement="GPUs before Ada have no FP8: weights are unpacked for each product, 11 to 13 % slower than AWQ",
        keys=("model", "quantization"),
        advice="use an AWQ or INT4 checkpoint",
        source=f"{BENCHMARK}; vLLM pull request #5975 (Marlin); SGLang issues #7715, #12887",
        checked="2026-11-25",
        options=_BOTH,
        finds=lambda facts: _quantised_as(facts, "fp8"),
        on_gpus=on_capability(lambda capability: capability < _FIRST_WITH_FP8),
    ),
    Trap(
        name=TrapName.AWQ_ON_BLACKWELL,
        statement="there is no efficient AWQ kernel for this GPU",
        keys=("model", "quantization"),
        advice="use an INT4 AutoRound, NVFP4 or GGUF checkpoint",
        source=f"{FIELD}: 32.8 tokens a second, and 107 of the same model as GGUF",
        checked="2026-11-25",
        options=_BOTH,
        finds=lambda facts: _quantised_as(facts, "awq"),
        on_gpus=on_capability(is_consumer_blackwell),
    ),
    Trap(
        name=TrapName.FP8_CACHE_OF_CHECKPOINT,
        statement="the cache is FP8 although the profile does not say so: the checkpoint does",
        keys=("kv",),
        advice='set kv, to "fp8" or to the model\'s own type',
        source="vLLM get_kv_cache_quant_algo_string (kv-cache-dtype auto)",
        checked="2026-11-25",
        options=_VLLM,
        finds=_fp8_cache,
    ),
    Trap(
        name=TrapName.MARLIN_ATOMIC_ADD,
        statement="vLLM's Marlin kernels add without atomics unless told otherwise: some 8 % slower",
        keys=("env.VLLM_MARLIN_USE_ATOMIC_ADD",),
        advice='set VLLM_MARLIN_USE_ATOMIC_ADD = "1" in [env], measure, and keep what is faster',
        source=f"{FIELD}: 80.6 tokens a second with it, 6.25 more than without",
        checked="2026-11-25",
        options=_VLLM,
        finds=_atomic_add,
    ),
    Trap(
        name=TrapName.IDLE_GPUS,
        statement="GPUs are claimed that the engine does not use: they stay empty, and no other profile may have them",
        keys=("gpus", "tensor_parallel", "pipeline_parallel"),
        advice="set tensor_parallel, or name fewer GPUs in gpus",
        source="vLLM and SGLang use one GPU unless told otherwise (--tensor-parallel-size)",
        checked="2026-11-25",
        options=_BOTH,
        finds=_few_workers,
        on_gpus=_more_gpus,
    ),
)
