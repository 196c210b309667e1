"""Estimate of a safetensors model under an engine that runs PyTorch."""

from collections.abc import Mapping
from typing import Final

from appliance.domain.model_headers import Safetensors
from appliance.domain.profile import Estimate
from appliance.domain.spec import Profile
from appliance.engines.shared.engine import PytorchLoading
from appliance.planning.estimates.facts import MOST_LAYERS, UnknownError

_PROCESS_BYTES: Final = 1 << 30
"""Bytes of a worker's CUDA context, NCCL, graphs and activations: 0.5 to 2 GiB by card and
batch."""
_HOST_BYTES: Final = 4 << 30
"""Bytes of Python, torch and the tokenizer of the server and its workers, roughly."""
_MOST: Final = 1 << 24
_TEXT: Final = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which models for images or sound keep the dimensions of their language model."""
_BYTES: Final = {"float32": 4, "float": 4, "float16": 2, "bfloat16": 2, "half": 2}


def estimate(profile: Profile, loading: PytorchLoading, model: Safetensors) -> Estimate:
    """Return weights as stored, the cache, and a rough allowance. Raises `UnknownError`."""
    notes = ["compute buffers guessed"]
    if profile.speculative is not None:
        notes.append("drafting not counted")
    if loading.cache_bytes is not None:
        cached = loading.cache_bytes * loading.workers
    else:
        cached = token_bytes(profile, model.config) * _tokens(profile, model.config)
        one = (profile.parallel or 1) == 1
        notes.append("room for one request's cache only" if one else "cache guessed")
    if profile.gpus == ():
        # On the CPU weights and cache are in main memory, too.
        in_ram = model.weights_bytes + cached + _HOST_BYTES
        return Estimate(vram_bytes=0, least_vram_bytes=0, ram_bytes=in_ram, notes=tuple(notes))
    return Estimate(
        vram_bytes=model.weights_bytes + cached + _PROCESS_BYTES * loading.workers,
        least_vram_bytes=model.weights_bytes,
        ram_bytes=_HOST_BYTES,
        notes=tuple(notes),
    )


def context_tokens(profile: Profile, model: Safetensors) -> int:
    """Return the tokens that one request may use. Raises `UnknownError`."""
    return _tokens(profile, model.config)


def token_bytes(profile: Profile, config: Mapping[str, object]) -> int:
    """Return the bytes of cache of one token in all layers. Raises `UnknownError`.

    Layers x 2 x KV heads x head size x type (``FullAttentionSpec.page_size_bytes`` of vLLM);
    with latent attention layers x (``kv_lora_rank`` + ``qk_rope_head_dim``) (``MLAAttentionSpec``).
    Layers with a sliding window or a state instead of a cache are counted in full.
    """
    text = _language(config)
    layers = _required(text, "num_hidden_layers", most=MOST_LAYERS)
    size = _element_bytes(profile, text)
    lora = _number(text, "kv_lora_rank")
    if lora:
        return layers * (lora + (_number(text, "qk_rope_head_dim") or 0)) * size
    heads = _required(text, "num_attention_heads")
    kv_heads = _number(text, "num_key_value_heads") or heads
    head = _number(text, "head_dim") or _required(text, "hidden_size") // heads
    return layers * 2 * kv_heads * head * size


def _language(config: Mapping[str, object]) -> Mapping[str, object]:
    if not config:
        raise UnknownError("there is no config.json beside the weights")
    for key in _TEXT:
        inner = config.get(key)
        if isinstance(inner, dict) and "num_hidden_layers" in inner:
            return inner
    return config


def _tokens(profile: Profile, config: Mapping[str, object]) -> int:
    trained = _number(_language(config), "max_position_embeddings")
    tokens = profile.ctx or trained
    if tokens is None:
        raise UnknownError("neither the profile nor config.json says a context length")
    return tokens * (profile.parallel or 1)


def _element_bytes(profile: Profile, text: Mapping[str, object]) -> int:
    if profile.kv is not None and profile.kv.k.startswith("fp8"):
        return 1
    return _BYTES.get(str(text.get("torch_dtype") or text.get("dtype")), 2)


def _required(config: Mapping[str, object], key: str, *, most: int = _MOST) -> int:
    found = _number(config, key, most=most)
    if not found:
        raise UnknownError(f"config.json does not say {key}")
    return found


def _number(config: Mapping[str, object], key: str, *, most: int = _MOST) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= most:
        raise UnknownError(f"{key} in config.json makes no sense")
    return value
