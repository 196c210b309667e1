"""Miniatures of well-known models: a few of their layers with a narrow embedding, for a real llama.cpp to load."""

import re
from collections.abc import Iterator, Mapping

from appliance.model.model_headers import Value
from tests.bench.estimate_engine import Allocated, EngineError, allocated
from tests.bench.estimate_models import GGUF_MODELS, GgufModel

CTX = 10240
"""Tokens of the one request, more than each model's window and a batch."""
_LAYERS = 12
_MORE_LAYERS = {"Gemma-3n-E4B": 24}
"""Layers where twelve would not show what the model has."""
_EMBEDDING = 128
_STATE_INNER = 2 * _EMBEDDING
_NAMES = [
    "SmolLM2-135M",
    "Qwen3-32B",
    "Qwen3-30B-A3B",
    "Phi-4",
    "GLM-4.5-Air",
    "ERNIE-4.5-21B-A3B",
    "Gemma-2-27B",
    "Gemma-3-27B",
    "Gemma-3n-E4B",
    "gpt-oss-20b",
    "Llama-4-Scout",
    "Command-R7B",
    "Gemma-4-26B-A4B",
    "DeepSeek-V3",
    "GLM-4.7-Flash",
    "DeepSeek-V3.2",
    "GLM-5",
    "Qwen3-Next-80B-A3B",
    "Qwen3.6-35B-A3B",
    "Qwen3.6-27B",
    "Granite-4.0-H-Small",
    "Jamba-1.5-Mini",
    "Falcon-H1-34B",
    "LFM2-1.2B",
    "Mamba-2.8B",
]
_EXPERTS = frozenset(
    [
        "qwen3moe",
        "llama4",
        "deepseek2",
        "deepseek32",
        "glm-dsa",
        "qwen3next",
        "qwen35moe",
        "ernie4_5-moe",
        "glm4moe",
        "gpt-oss",
        "granitehybrid",
    ]
)
_EXPANDED = frozenset({"mamba", "jamba", "granitehybrid"})
"""Architectures whose states must be twice as wide as the embedding."""
_REQUIRED: Mapping[str, Value] = {
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.layer_norm_epsilon": 1e-6,
    "attention.q_lora_rank": 32,
    "attention.kv_lora_rank": 512,
    "attention.indexer.top_k": 16,
    "attention.indexer.head_count": 2,
    "rope.dimension_count": 16,
    "rope.dimension_sections": (4, 4, 4, 0),
    "rope.freq_base": 10000.0,
    "leading_dense_block_count": 0,
    "expert_feed_forward_length": 32,
    "expert_shared_count": 1,
    "expert_gating_func": 1,
    "expert_weights_scale": 1.0,
    "interleave_moe_layer_step": 1,
    "embedding_length_per_layer_input": 16,
    "logit_scale": 1.0,
    "ssm.time_step_rank": 8,
    "altup.num_inputs": 4,
    "altup.active_idx": 0,
}
"""Keys that some loaders want, and no cache depends on: put in once a loader misses one."""
_MISSING = re.compile(r"key not found in model: (\S+)")


def miniatures() -> Iterator[tuple[str, dict[str, Value]]]:
    """Return the name and the metadata of each miniature."""
    by_name = {model.name: model for model in GGUF_MODELS}
    for name in _NAMES:
        yield name, _metadata(by_name[name])


def _metadata(model: GgufModel) -> dict[str, Value]:
    count = min(len(model.layers), _MORE_LAYERS.get(model.name, _LAYERS)) + model.drafting
    keys: dict[str, Value] = dict(model.keys)
    keys |= {"block_count": count, "embedding_length": _EMBEDDING}
    keys["feed_forward_length"] = 64
    del keys["vocab_size"]
    if model.architecture in _EXPERTS:
        keys |= {"expert_count": 4, "expert_used_count": 2}
    if model.architecture in _EXPANDED:
        keys["ssm.inner_size"] = _STATE_INNER
    for name, value in keys.items():
        if isinstance(value, tuple):
            keys[name] = value[:count] + value[-1:] * (count - len(value))
    metadata: dict[str, Value] = {"general.architecture": model.architecture}
    return metadata | {f"{model.architecture}.{name}": value for name, value in keys.items()}


def loaded(metadata: Mapping[str, Value]) -> Allocated:
    """Return what the engine allocates for a miniature. Raises `EngineError`."""
    prefix = f"{metadata['general.architecture']}."
    plain: dict[str, object] = dict(metadata)
    while True:
        listed = {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()}
        try:
            return allocated(listed, ctx=CTX)
        except EngineError as error:
            missing = _MISSING.search(str(error))
            value = None if missing is None else _REQUIRED.get(missing[1].removeprefix(prefix))
            if missing is None or value is None:
                raise
            plain[missing[1]] = value
