"""How an engine spreads its memory over the GPUs it uses."""

from typing import Final

from appliance.domain.spec import LlamaServerOptions, Profile, SglangOptions, VllmOptions
from appliance.engines.vllm import declared_cache_bytes

VLLM_UTILISATION: Final = 0.92
"""What vLLM takes of each GPU when nobody says (``CacheConfig.gpu_memory_utilization``; it was
0.9 up to version 0.16). Too much only waits a little longer; too little would not start."""


def gpu_split(profile: Profile) -> tuple[float, ...]:
    """Weights of the GPUs in their order, as `Applied.gpu_split` has them.

    llama.cpp: ``--tensor-split`` where given; ``--split-mode none`` uses the first GPU alone.
    vLLM and SGLang put one shard on each of the first tensor x pipeline GPUs.
    """
    options = profile.options
    if profile.gpus == ():
        return ()
    if isinstance(options, LlamaServerOptions):
        return (1.0,) if options.split_mode == "none" else _useful(options.tensor_split)
    if isinstance(options, VllmOptions | SglangOptions):
        shards = (options.tensor_parallel or 1) * (options.pipeline_parallel or 1)
        return (1.0,) * shards
    return ()


def _useful(split: tuple[float, ...]) -> tuple[float, ...]:
    """llama.cpp takes a split of nothing but zeros for no split at all."""
    return split if any(split) else ()


def vram_fraction(profile: Profile) -> float | None:
    """Share of each GPU that the engine takes whatever the model is; None: no such rule.

    vLLM: ``gpu_memory_utilization``, unless ``kv_cache_memory_bytes`` overrides it. SGLang:
    ``mem_fraction_static``, whose default depends on the GPU and is therefore not guessed.
    """
    if profile.gpus == ():
        return None
    match profile.options:
        case VllmOptions() as options:
            return _utilisation(profile, options)
        case SglangOptions(mem_fraction_static=fraction):
            return fraction
        case _:
            return None


def ram_fraction(profile: Profile) -> float | None:
    """Share of main memory that the engine takes whatever the model is; None: no such rule.

    vLLM's build for CPUs takes ``gpu_memory_utilization`` of the memory of its NUMA node, and does
    not start where less is available (vllm/v1/worker/cpu_worker.py).
    """
    if profile.gpus == () and isinstance(profile.options, VllmOptions):
        return _utilisation(profile, profile.options)
    return None


def _utilisation(profile: Profile, options: VllmOptions) -> float | None:
    if declared_cache_bytes(profile, options) is not None:
        return None
    given = options.gpu_memory_utilization
    return VLLM_UTILISATION if given is None else given
