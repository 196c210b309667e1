"""Settings with which the servers of llama.cpp and of its forks hold a model, for its estimate."""

from collections.abc import Mapping
from typing import Final

from appliance.engines.shared.drafting import DraftMethod, used_methods
from appliance.engines.shared.engine import DraftLoading, LlamaCppLoading
from appliance.engines.shared.llama_cpp_options import LlamaCppOptions
from appliance.model.profile_values import KvCache
from appliance.model.spec import Profile, Speculative

_CHECKPOINTS: Final = 32
"""Most checkpoints of a request, where nothing is said (``common_params::n_ctx_checkpoints``; in
ik_llama.cpp ``gpt_params::ctx_checkpoints_n``)."""


def gpu_split(
    profile: Profile, options: LlamaCppOptions, split_mode: str | None
) -> tuple[float, ...]:
    """Return the weights of the GPUs, as `MemoryUse.gpu_split` has them; empty: no split is declared.

    llama.cpp takes a split of nothing but zeros for no split at all.
    """
    if profile.gpus == ():
        return ()
    if split_mode == "none":
        return (1.0,)
    return options.tensor_split if any(options.tensor_split) else ()


def shared_loading(
    profile: Profile,
    options: LlamaCppOptions,
    methods: Mapping[str, DraftMethod],
    *,
    uncertain: tuple[str, ...],
) -> LlamaCppLoading:
    """Return what the options say that all these servers have; an engine adds its own by `replace`.

    Args:
        profile: The profile.
        options: Its engine's table.
        methods: Methods of speculative decoding that the engine has, by name.
        uncertain: Beginnings of arguments that may change the cache in ways that the estimate does not
            follow.
    """
    checkpoints = options.ctx_checkpoints
    return LlamaCppLoading(
        projector=options.mmproj,
        projector_in_ram=options.mmproj_offload is False,
        gpu_layers=options.gpu_layers,
        cpu_experts=tuple(range(options.n_cpu_moe or 0)) or options.cpu_experts,
        overrides=options.override_tensor,
        cache_in_ram=options.kv_offload is False,
        tensor_split=options.tensor_split,
        checkpoints=_CHECKPOINTS if checkpoints is None else checkpoints,
        certain=not any(a.startswith(uncertain) for a in profile.extra_args),
        batch=options.batch,
        ubatch=options.ubatch,
        flash_attn=options.flash_attn,
        draft=_draft(profile.speculative, methods),
    )


def _draft(
    speculative: Speculative | None, methods: Mapping[str, DraftMethod]
) -> DraftLoading | None:
    """Return how drafts are made by a model; None: there are none, or n-grams make them."""
    used = () if speculative is None else used_methods(speculative, methods)
    if speculative is None or all(method.model == "none" for method in used):
        return None
    kv = speculative.kv or KvCache(k="f16", v="f16")
    return DraftLoading(
        tokens=speculative.tokens or 0,
        own_layers=methods["mtp"] in used,
        model=speculative.model,
        gpu_layers=speculative.gpu_layers,
        key_type=kv.k,
        value_type=kv.v,
    )
