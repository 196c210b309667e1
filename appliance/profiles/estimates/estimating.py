"""Estimate of a profile's memory, whatever its engine, and traits of its model, from one reading of its headers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import LlamaCppLoading, PytorchLoading
from appliance.model.model_headers import (
    Gguf,
    LookAtModel,
    Model,
    ModelFileFault,
    ModelReference,
    ModelTraits,
    Safetensors,
    Unread,
)
from appliance.model.model_headers import Safetensors as Weights
from appliance.model.profile import Estimate
from appliance.model.spec import Profile
from appliance.profiles.estimates import llama_cpp, transformers
from appliance.profiles.estimates.gguf_layers import GgufFacts, UnknownError
from appliance.profiles.estimates.transformers import ConfigFacts, Keeps, cache_of_checkpoint

_NOT_THERE: Final = "the model's files were missing when the profile was applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """Estimate of a profile, with what else the headers of its model say."""

    estimate: Estimate | None = None
    problem: str = ""
    """Reason why there is no estimate, as a phrase."""
    file_bytes: int | None = None
    """Bytes of the model's files; None: not known."""
    weights: Safetensors | None = None
    """Headers of a model in safetensors files; None: a model of another format, or not read."""
    traits: ModelTraits | None = None
    """Traits of the model, for the lint of the profile; None: its headers were not read."""
    gpu_weights: range | None = None
    """Least and most bytes of the model's own weights on the GPUs; None: not known, or none."""
    context_tokens: int | None = None
    """Tokens that one request may use; None: not known."""
    modified_unix_s: int = 0
    """Unix seconds of the model's file; 0: not known."""


def reference_of(engine: str, model: str, path: str | None) -> ModelReference | None:
    """Return the reference of a profile's model; None: no model that can be read is named."""
    known = ENGINES.get(engine)
    if known is None or known.weights is None or not model:
        return None
    return ModelReference(model=model, path=path, gguf=known.weights == "gguf")


def estimated(profile: Profile, path: str | None, look: LookAtModel) -> Estimated:
    """Read the headers of `profile`'s model and estimate its memory.

    Args:
        profile: A valid one.
        path: Its model's file or directory.
        look: Reads headers.
    """
    loading = ENGINES[profile.engine].memory(profile).loading
    tokens = profile.ctx or (loading.default_ctx if isinstance(loading, LlamaCppLoading) else None)
    reference = reference_of(profile.engine, profile.model, path)
    if reference is None:
        return Estimated(problem="nothing is known about the program", context_tokens=tokens)
    if isinstance(loading, LlamaCppLoading):
        reference = replace(
            reference,
            projector=loading.projector,
            brings_projector=loading.brings_projector,
            draft=None if loading.draft is None else loading.draft.model,
        )
    paths = tuple(a.path for a in profile.adapters if a.path.startswith("/"))
    model = look(replace(reference, adapters=paths))
    if isinstance(model, Unread):
        missing = model.fault is ModelFileFault.MISSING
        problem = _NOT_THERE if missing else model.problem
        return Estimated(problem=problem, context_tokens=tokens)
    found = Estimated(
        file_bytes=model.file_bytes,
        weights=model.main if isinstance(model.main, Safetensors) else None,
        traits=traits_of(model),
        context_tokens=tokens or _trained_for(profile, loading, model),
        modified_unix_s=model.modified_unix_s,
    )
    try:
        if isinstance(loading, LlamaCppLoading) and isinstance(model.main, Gguf):
            placed = llama_cpp.gpu_weights(profile, loading, model.main)
            found = replace(found, gpu_weights=placed)
        return replace(found, estimate=_estimate(profile, loading, model))
    except UnknownError as error:
        return replace(found, problem=str(error))


def _trained_for(
    profile: Profile, loading: LlamaCppLoading | PytorchLoading | None, model: Model
) -> int | None:
    """Return the tokens of one request where the profile does not say; None: not known."""
    try:
        match loading, model.main:
            case LlamaCppLoading() as llama, Gguf() as gguf:
                return llama_cpp.context_tokens(profile, llama, gguf)
            case PytorchLoading(), Safetensors() as weights:
                return transformers.context_tokens(profile, weights)
            case _:
                return None
    except UnknownError:
        return None


def _estimate(
    profile: Profile, loading: LlamaCppLoading | PytorchLoading | None, model: Model
) -> Estimate:
    match loading, model.main:
        case LlamaCppLoading() as llama, Gguf() as gguf:
            return llama_cpp.estimate(profile, llama, model, gguf)
        case PytorchLoading() as sharded, Safetensors() as weights:
            total = weights.weights_bytes + model.adapter_bytes
            return transformers.estimate(profile, sharded, replace(weights, weights_bytes=total))
        case _:
            raise UnknownError(f"{profile.engine} is not estimated for files of this format")


_FILE_TYPES: Final = {14: "q4_k_s", 15: "q4_k_m"}
"""Values of ``general.file_type`` that a trap is about (llama.h, ``llama_ftype``)."""
_LONGEST: Final = 64
"""Longest word of a header that is kept, in characters."""


def traits_of(model: Model) -> ModelTraits:
    """Return the traits of a model; what makes no sense in its headers is left out."""
    try:
        if isinstance(model.main, Gguf):
            return _of_gguf(GgufFacts(model.main), model.main)
        return _of_weights(ConfigFacts(model.main.config), model.main)
    except UnknownError:
        return ModelTraits()


def _of_gguf(facts: GgufFacts, gguf: Gguf) -> ModelTraits:
    file_type = gguf.metadata.get("general.file_type")
    has_experts = bool(facts.number("expert_count"))
    return ModelTraits(
        quantisation=_FILE_TYPES.get(file_type, "") if isinstance(file_type, int) else "",
        drafts=facts.has_drafting_layers,
        family=facts.architecture,
        dense_layers=facts.number("leading_dense_block_count") or 0 if has_experts else 0,
    )


def _of_weights(facts: ConfigFacts, weights: Weights) -> ModelTraits:
    cache_type = cache_of_checkpoint(facts.quantisation)
    return ModelTraits(
        quantisation=_method(facts.quantisation),
        drafts=weights.draft_bytes > 0,
        is_hybrid=Keeps.STATE in facts.kinds(),
        family=facts.word("model_type")[:_LONGEST],
        cache_type="" if cache_type == "auto" else cache_type[:_LONGEST],
    )


def _method(quantisation: Mapping[str, object]) -> str:
    """Return the method of ``quantization_config``, by what its weights are where several formats share a name."""
    method = str(quantisation.get("quant_method", ""))[:_LONGEST].lower()
    if method.startswith("modelopt"):
        inner = quantisation.get("quantization", quantisation)
        algorithm = inner.get("quant_algo") if isinstance(inner, dict) else None
        return str(algorithm or method)[:_LONGEST].lower()
    if method == "compressed-tensors":
        form = str(quantisation.get("format", ""))
        if form.startswith("nvfp4"):
            return "nvfp4"
        return "fp8" if form.startswith("float") else method
    return method
