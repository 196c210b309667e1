"""Cache and state that llama.cpp keeps for every token and every request."""

from dataclasses import dataclass
from typing import Final

from appliance.planning.estimates.facts import GgufFacts

TYPES: Final = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}
"""Elements of a block and the bytes that they take, by cache type (``GGML_QUANT_SIZES``)."""
_PADDING: Final = 256
"""Multiple to which the cache of a request is rounded up (``llama_context``: ``GGML_PAD(n_ctx,
256)``)."""
_STATE_BYTES: Final = 4
"""Bytes of an element of a recurrent state, which is F32 (``llama_memory_recurrent``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Window of the cache: number of tokens, and of caches."""

    tokens: int
    """Tokens of one request, or of all requests where they share one cache."""
    caches: int
    """Number of caches: one for each request, or one shared."""
    requests: int
    key_type: str
    value_type: str

    @property
    def cells(self) -> int:
        """Return the tokens of all caches together, padded as llama.cpp does."""
        return -(-self.tokens // _PADDING) * _PADDING * self.caches


def layer_bytes(facts: GgufFacts, window: Window) -> tuple[int, ...]:
    """Return the bytes of cache, or of state, of every layer.

    ``llama_kv_cache``: a layer has cells x ``n_embd_k_gqa`` keys and cells x ``n_embd_v_gqa``
    values, which are KV heads x head size (``llama_hparams``). A sliding window may be kept
    smaller, latent attention may keep no values, and layers may share a cache: this is then an
    upper bound, see `notes`.
    """
    if facts.value("attention.causal") is False:
        return (0,) * facts.layers  # an encoder has no cache
    heads = facts.per_layer("attention.head_count_kv", default=facts.heads)
    key, value = _head_sizes(facts)
    attends = _attending(facts)
    state = _state_bytes(facts) * window.requests
    return tuple(
        _row(n * key, window.key_type) * window.cells
        + _row(n * value, window.value_type) * window.cells
        if n and attends[layer]
        else state
        for layer, n in enumerate(heads)
    )


def notes(facts: GgufFacts) -> tuple[str, ...]:
    """Return the reasons for which `layer_bytes` is an upper bound."""
    found = []
    if facts.number("attention.sliding_window"):
        found.append("sliding window, upper bound")
    if facts.number("attention.kv_lora_rank"):
        found.append("latent attention, upper bound")
    if facts.number("attention.shared_kv_layers"):
        found.append("shared caches, upper bound")
    if (
        facts.recurrent
        and all(_attending(facts))
        and 0 not in facts.per_layer("attention.head_count_kv", default=facts.heads)
    ):
        found.append("recurrent layers counted as attention, upper bound")
    return tuple(found)


def _head_sizes(facts: GgufFacts) -> tuple[int, int]:
    """Return the sizes of a key and a value; by default the embedding's size over the heads."""
    lora = facts.number("attention.kv_lora_rank")
    usual = facts.embedding // max(1, *facts.heads)
    if lora and facts.number("attention.key_length") is None:
        rope = facts.number("rope.dimension_count") or 0
        return lora + rope, lora
    key = facts.number("attention.key_length")
    value = facts.number("attention.value_length")
    return (usual if key is None else key), (usual if value is None else value)


def _attending(facts: GgufFacts) -> tuple[bool, ...]:
    """Return which layers have attention: in hybrids each n-th (``full_attention_interval``)."""
    interval = facts.number("full_attention_interval") or 1
    return tuple((layer + 1) % interval == 0 for layer in range(facts.layers))


def _state_bytes(facts: GgufFacts) -> int:
    """Return bytes of one request's recurrent state: ``n_embd_r``, ``n_embd_s`` of llama_hparams."""
    head = facts.number("wkv.head_size")
    if head:
        return (2 + head) * facts.embedding * _STATE_BYTES
    short = facts.number("shortconv.l_cache")
    if short:
        return facts.embedding * (short - 1) * _STATE_BYTES
    convolution = facts.number("ssm.conv_kernel") or 1
    inner, size = facts.number("ssm.inner_size") or 0, facts.number("ssm.state_size") or 0
    groups = facts.number("ssm.group_count") or 0
    return ((convolution - 1) * (inner + 2 * groups * size) + size * inner) * _STATE_BYTES


def _row(elements: int, kind: str) -> int:
    block, size = TYPES[kind]
    return -(-elements // block) * size
