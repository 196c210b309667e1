"""Traits of a model from its headers."""

from collections.abc import Mapping
from typing import Final

from appliance.model.model_headers import (
    Gguf,
    LookAtModel,
    Model,
    ModelReference,
    ModelTraits,
    Unread,
)
from appliance.model.model_headers import Safetensors as Weights
from appliance.profiles.estimates.config_facts import ConfigFacts, Keeps
from appliance.profiles.estimates.facts import GgufFacts, UnknownError
from appliance.profiles.estimates.transformers import cache_of_checkpoint

_FILE_TYPES: Final = {14: "q4_k_s", 15: "q4_k_m"}
"""Values of ``general.file_type`` that a trap is about (llama.h, ``llama_ftype``)."""
_LONGEST: Final = 64
"""Longest word of a header that is kept, in characters."""


class TraitsReader:
    """`LookAtModel` that remembers the traits of the model that it read last.

    Headers are read once, for the estimate of a profile; its lint looks at what they told.
    """

    def __init__(self, look: LookAtModel) -> None:
        self._look = look
        self.traits: ModelTraits | None = None
        """Traits of the model; None: none was read."""

    def __call__(self, reference: ModelReference) -> Model | Unread:
        """Return what the reader below returns."""
        found = self._look(reference)
        self.traits = None if isinstance(found, Unread) else traits_of(found)
        return found


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
        drafts=facts.layers < facts.blocks,
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
