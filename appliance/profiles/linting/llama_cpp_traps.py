"""Traps of servers of llama.cpp."""

import re
from typing import Final

from appliance.engines.llama_server import LlamaServerOptions
from appliance.engines.shared.engine import options_of
from appliance.engines.shared.llama_cpp import DEFAULT_UBATCH, LlamaCppOptions
from appliance.model.trap_names import TrapName
from appliance.profiles.linting.trap import (
    FIELD,
    BuildRange,
    GpuFacts,
    LintFacts,
    Trap,
    is_consumer_blackwell,
    on_capability,
)

_WITHOUT_KERNEL: Final = frozenset({"q4_1", "q5_0", "q5_1", "iq4_nl"})
"""Types of the cache for which a usual CUDA build has no kernel of flash attention (fattn.cu)."""
_UNQUANTISED: Final = frozenset({"f32", "f16", "bf16"})
_MAPPED: Final = frozenset({None, "auto", "mmap", "mmap+mlock"})
"""Values of ``load_mode`` with which the model's file is mapped."""
_SEVERAL: Final = 2
_CUDA_13: Final = re.compile(r"cu(?:da)?[-_]?1[3-9]", re.IGNORECASE)


def _types(facts: LintFacts) -> tuple[str, str] | None:
    """Return the types of keys and values in a cache on GPUs; None: unset, or not on GPUs."""
    kv = facts.profile.kv
    in_ram = options_of(LlamaCppOptions, facts.profile).kv_offload is False
    return None if kv is None or facts.profile.gpus == () or in_ram else (kv.k, kv.v)


def _asymmetric(facts: LintFacts) -> str | None:
    types = _types(facts)
    if types is None or types[0] == types[1]:
        return None
    return f"keys are {types[0]}, values {types[1]}"


def _without_kernel(facts: LintFacts) -> str | None:
    types = _types(facts)
    if types is None or types[0] != types[1] or types[0] not in _WITHOUT_KERNEL:
        return None
    return f"kv is {types[0]}"


def _v_without_flash_attention(facts: LintFacts) -> str | None:
    kv, options = facts.profile.kv, options_of(LlamaCppOptions, facts.profile)
    if kv is None or kv.v in _UNQUANTISED or options.flash_attn != "off":
        return None
    return f"values are {kv.v}"


def _garbling_cache(facts: LintFacts) -> str | None:
    types = _types(facts)
    return "kv is q4_0" if types == ("q4_0", "q4_0") else None


def _keeps_weights_in_ram(facts: LintFacts) -> str:
    """Return how the profile keeps weights in host RAM, as a phrase; empty: it keeps none there."""
    options = options_of(LlamaCppOptions, facts.profile)
    if facts.applied.locks_memory:
        return "the weights are locked in RAM"
    if _has_experts_in_ram(options):
        return "experts stay in host RAM"
    return "the model runs on the CPU" if facts.profile.gpus == () else ""


def _has_experts_in_ram(options: LlamaCppOptions) -> bool:
    return bool(options.n_cpu_moe or options.cpu_experts)


def _embeds(options: LlamaCppOptions) -> bool:
    """Tell whether texts are embedded or ranked, which generates nothing."""
    return options.embedding or (isinstance(options, LlamaServerOptions) and options.rerank)


def _default_prompt_cache(facts: LintFacts) -> str | None:
    options, need = options_of(LlamaCppOptions, facts.profile), facts.profile.need
    if options.cache_ram_mib is not None or need.ram_bytes is not None:
        return None
    if _embeds(options):
        return None
    kept = _keeps_weights_in_ram(facts)
    return f"{kept}, cache_ram and need.ram are unset" if kept else None


def _mapped_experts(facts: LintFacts) -> str | None:
    options = options_of(LlamaServerOptions, facts.profile)
    if facts.profile.gpus == () or not _has_experts_in_ram(options):
        return None
    if options.load_mode not in _MAPPED:
        return None
    return f"load_mode is {options.load_mode or 'unset'}"


def _first_experts(facts: LintFacts) -> str | None:
    options = options_of(LlamaServerOptions, facts.profile)
    if not options.n_cpu_moe or options.tensor_split or options.split_mode not in {None, "layer"}:
        return None
    if facts.profile.gpus != "all" and len(facts.profile.gpus) < _SEVERAL:
        return None
    return f"n_cpu_moe is {options.n_cpu_moe}, tensor_split is unset"


def _on_several_gpus(facts: LintFacts, gpus: GpuFacts) -> str | None:
    count = len(gpus.used_by(facts.applied))
    return f"{count} GPUs" if count >= _SEVERAL else None


def _dense_layers(facts: LintFacts) -> str | None:
    options = options_of(LlamaCppOptions, facts.profile)
    dense = 0 if facts.traits is None else facts.traits.dense_layers
    if not options.n_cpu_moe or options.n_cpu_moe > dense:
        return None
    return f"n_cpu_moe is {options.n_cpu_moe}, the first {dense} layers have no experts"


def _threads_above_cpus(facts: LintFacts) -> str | None:
    options = options_of(LlamaServerOptions, facts.profile)
    if not options.cpus or (options.threads or 0) <= len(options.cpus):
        return None
    return f"{options.threads} threads, {len(options.cpus)} CPUs"


def _short_micro_batch(facts: LintFacts) -> str | None:
    options = options_of(LlamaCppOptions, facts.profile)
    if not _embeds(options) or options.pooling == "last":
        return None
    ubatch, ctx = options.ubatch or DEFAULT_UBATCH, facts.profile.ctx or 0
    return f"ubatch is {ubatch}, ctx {ctx}" if ubatch < ctx else None


def _native_fp4(facts: LintFacts) -> str | None:
    quantisation = "" if facts.traits is None else facts.traits.quantisation
    if quantisation != "q4_k_m" or not _CUDA_13.search(facts.applied.binary):
        return None
    return f"a Q4_K_M model, and {facts.applied.binary} is named after CUDA 13"


_LLAMA_CPP: Final = (LlamaCppOptions,)
_LLAMA_SERVER: Final = (LlamaServerOptions,)

LLAMA_CPP_TRAPS: Final = (
    Trap(
        name=TrapName.ASYMMETRIC_KV,
        statement="attention with keys and values of different types runs on the CPU in a usual CUDA build,"
        " and prompts take 8 to 45 times as long",
        keys=("kv",),
        advice="use one type for both, or a build with GGML_CUDA_FA_ALL_QUANTS",
        source="llama.cpp issues #24485, #27109, #28455 (ggml-cuda/fattn.cu)",
        checked="2026-11-25",
        options=_LLAMA_CPP,
        finds=_asymmetric,
    ),
    Trap(
        name=TrapName.CACHE_TYPE_ON_CPU,
        statement="attention over a cache of this type runs on the CPU in a usual CUDA build, and prompts take 8 to 30"
        " times as long",
        keys=("kv",),
        advice="use q8_0, q4_0 or f16, or a build with GGML_CUDA_FA_ALL_QUANTS",
        source="llama.cpp issues #27109, #28455, pull request #27248 (open)",
        checked="2026-11-25",
        options=_LLAMA_SERVER,
        finds=_without_kernel,
    ),
    Trap(
        name=TrapName.QUANTISED_V_WITHOUT_FLASH_ATTENTION,
        statement="llama.cpp ends at the start: quantised values in the cache need flash attention",
        keys=("flash_attn", "kv"),
        advice="remove flash_attn, or set kv to f16",
        source="llama.cpp issue #28524 (llama_init_from_model)",
        checked="2026-11-25",
        options=_LLAMA_CPP,
        finds=_v_without_flash_attention,
    ),
    Trap(
        name=TrapName.Q4_0_CACHE_ON_BLACKWELL,
        statement="answers are garbled after some tokens with a q4_0 cache",
        keys=("kv",),
        advice="use q8_0, or another build",
        source="llama.cpp issue #23693: b9174 good, b9333 bad; b9867 good (#25422)",
        checked="2026-11-25",
        options=_LLAMA_SERVER,
        builds=BuildRange(since="b9175", until="b9867"),
        finds=_garbling_cache,
        on_gpus=on_capability(is_consumer_blackwell),
    ),
    Trap(
        name=TrapName.PROMPT_CACHE,
        statement="the prompt cache grows to 8 GiB of host RAM beside the weights, which no need counts",
        keys=("cache_ram", "need.ram"),
        advice='set cache_ram, "0" for none',
        source=f"{FIELD}; llama.cpp issue #22629 (--cache-ram, 8192 MiB)",
        checked="2026-11-25",
        options=_LLAMA_CPP,
        finds=_default_prompt_cache,
    ),
    Trap(
        name=TrapName.MAPPED_EXPERTS,
        statement="experts that the CPU computes are read out of a mapped file, slowly, and the kernel may drop them",
        keys=("load_mode", "n_cpu_moe", "cpu_experts"),
        advice='set load_mode = "none", or "mlock" for weights that must not go to swap',
        source="llama.cpp issues #26110, #29130",
        checked="2026-11-25",
        options=_LLAMA_SERVER,
        finds=_mapped_experts,
    ),
    Trap(
        name=TrapName.UNEVEN_EXPERTS,
        statement="--n-cpu-moe takes the experts of the first layers, which are all on the first GPU: that stays empty"
        " while the last one runs out of memory",
        keys=("tensor_split", "n_cpu_moe"),
        advice="set tensor_split, or name layers of each GPU in cpu_experts",
        source="llama.cpp issues #15136, #15263; ik_llama.cpp has no such trap since March 2026 (#1464)",
        checked="2026-11-25",
        options=_LLAMA_SERVER,
        finds=_first_experts,
        on_gpus=_on_several_gpus,
    ),
    Trap(
        name=TrapName.DENSE_FIRST_LAYERS,
        statement="--n-cpu-moe counts layers without experts too, so nothing stays in host RAM",
        keys=("n_cpu_moe",),
        advice="raise n_cpu_moe, or name layers in cpu_experts",
        source="llama.cpp pull request #15077 (--n-cpu-moe keeps the first layers); leading_dense_block_count",
        checked="2026-11-25",
        options=_LLAMA_CPP,
        finds=_dense_layers,
    ),
    Trap(
        name=TrapName.SHARED_CPUS,
        statement="threads share CPUs, and each token waits for the slowest of them",
        keys=("threads", "cpus"),
        advice="set threads to the number of cpus",
        source=f"llama.cpp --threads, --cpu-mask; {FIELD}: 8 threads on 8 chosen CPUs were best",
        checked="2026-11-25",
        options=_LLAMA_SERVER,
        finds=_threads_above_cpus,
    ),
    Trap(
        name=TrapName.EMBEDDING_UBATCH,
        statement="a text longer than one physical batch is refused, whatever ctx is",
        keys=("ubatch", "batch", "ctx"),
        advice="set batch and ubatch to ctx",
        source='llama.cpp server-context.cpp, "increase the physical batch size"',
        checked="2026-11-25",
        options=_LLAMA_CPP,
        finds=_short_micro_batch,
    ),
    Trap(
        name=TrapName.NATIVE_FP4_Q4_K_M,
        statement="a CUDA 13 build with BLACKWELL_NATIVE_FP4 ends at the first token of a Q4_K_M model",
        keys=("binary", "model"),
        advice="use a build with CUDA 12.8, or a newer one",
        source=f"{FIELD}, 2026-04-18; builds of June 2026 run Q4_K models on such GPUs",
        checked="2026-11-25",
        options=_LLAMA_SERVER,
        builds=BuildRange(until="b9598"),
        finds=_native_fp4,
        on_gpus=on_capability(is_consumer_blackwell),
    ),
)
