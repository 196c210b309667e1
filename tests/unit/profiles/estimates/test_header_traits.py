"""Traits of models from their headers."""

from collections.abc import Mapping
from typing import Any

import pytest

from appliance.model.model_headers import (
    Gguf,
    Model,
    ModelFileFault,
    ModelReference,
    ModelTraits,
    Safetensors,
    Unread,
)
from appliance.profiles.estimates.estimating import traits_of
from tests.fakes.trap_samples import facts

REFERENCE = ModelReference(model="/m", path="/m", gguf=True)
LLAMA: Mapping[str, Any] = {
    "general.architecture": "qwen35moe",
    "qwen35moe.block_count": 41,
    "qwen35moe.embedding_length": 64,
}


def gguf(**metadata: Any) -> Model:
    return Model(main=Gguf(metadata={**LLAMA, **metadata}, tensors=(), file_bytes=0))


def weights(config: Mapping[str, object], draft_bytes: int = 0) -> Model:
    return Model(
        main=Safetensors(
            config={"num_hidden_layers": 8, **config},
            weights_bytes=100,
            file_bytes=100,
            draft_bytes=draft_bytes,
        )
    )


def test_a_gguf_file_has_its_quantisation_and_layers() -> None:
    """The type of the file, drafting layers and first layers without experts are traits."""
    found = traits_of(
        gguf(
            **{
                "general.file_type": 15,
                "qwen35moe.nextn_predict_layers": 1,
                "qwen35moe.expert_count": 128,
                "qwen35moe.leading_dense_block_count": 3,
            }
        )
    )
    assert found == ModelTraits(
        quantisation="q4_k_m", drafts=True, family="qwen35moe", dense_layers=3
    )


@pytest.mark.parametrize("file_type", [7, "15", None])
def test_another_type_of_file_is_no_trap(file_type: object) -> None:
    """A type that no trap is about, or that makes no sense, is none; a dense model has no such layers."""
    metadata = {"general.file_type": file_type, "qwen35moe.leading_dense_block_count": 3}
    found = traits_of(gguf(**metadata))
    assert (found.quantisation, found.drafts, found.dense_layers) == ("", False, 0)


@pytest.mark.parametrize(
    ("quantisation", "method"),
    [
        ({"quant_method": "awq"}, "awq"),
        ({"quant_method": "auto-round", "bits": 4}, "auto-round"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "fp8"),
        (
            {"quant_method": "compressed-tensors", "format": "pack-quantized"},
            "compressed-tensors",
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, "fp8"),
        ({"quant_method": "modelopt", "quantization": 7}, "modelopt"),
        ({"quant_method": "x" * 1000}, "x" * 64),
        ({}, ""),
    ],
)
def test_a_checkpoint_tells_its_quantisation(
    quantisation: Mapping[str, object], method: str
) -> None:
    """Formats that several methods share are told by what their weights are."""
    assert traits_of(weights({"quantization_config": quantisation})).quantisation == method


def test_a_checkpoint_tells_its_layers_and_cache() -> None:
    """Layers with a state, weights that draft and the type of the cache are told."""
    config = {
        "model_type": "qwen3_5",
        "full_attention_interval": 4,
        "quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"},
    }
    assert traits_of(weights(config, draft_bytes=1)) == ModelTraits(
        quantisation="modelopt", drafts=True, is_hybrid=True, family="qwen3_5", cache_type="fp8"
    )


def test_headers_that_make_no_sense_tell_nothing() -> None:
    """A model that cannot be estimated has no traits either."""
    assert traits_of(weights({"num_hidden_layers": -1})) == ModelTraits()


def test_headers_are_read_once() -> None:
    """The reading for the estimate gives the traits too; a model that is not there has none."""
    readings: list[ModelReference] = []

    def look(reference: ModelReference) -> Model:
        readings.append(reference)
        return gguf()

    found = facts("llama-server", look=look).traits
    assert found == ModelTraits(family="qwen35moe", drafts=False)
    assert len(readings) == 1
    unread = Unread(fault=ModelFileFault.MISSING, problem="missing")
    assert facts("llama-server", look=lambda _reference: unread).traits is None


def test_a_profile_is_compiled_with_its_models_traits() -> None:
    """The spec of a unit has the traits that the estimate's reading gave."""
    assert facts("llama-server").traits is None
    found = facts("llama-server", look=lambda _reference: gguf(**{"general.file_type": 14}))
    assert found.traits is not None
    assert found.traits.quantisation == "q4_k_s"
