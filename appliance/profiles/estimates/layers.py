"""Memory of each layer of a GGUF model: what llama.cpp keeps for a token, and for a request.

====================  ====================================================================
what a layer keeps    rule (llama_hparams, llama_kv_cache, llama_memory_recurrent)
====================  ====================================================================
keys, values          KV heads x head size; a layer with a window has its own head sizes
no values             with latent attention (``key_length_mla`` and ``value_length_mla``)
nothing               a layer that shares the cache of an earlier one; an encoder
keys of the indexer   ``attention.indexer.key_length``, beside the cache (sparse attention)
a state               the last columns of the convolution, and the state proper
====================  ====================================================================
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from appliance.profiles.estimates.architectures import Architecture, architecture_of
from appliance.profiles.estimates.facts import GgufFacts

_SHARED_INDEXER: Final = "glm-dsa"
_SHARED_INDEXER_FROM: Final = 1 << 20
"""Trained context from which layers of glm-dsa share an indexer where the file lists none."""
_SHARING: Final = 4
"""Number of layers that share one indexer."""
_NOT_SHARING: Final = 2
"""Number of first layers that have an indexer each."""
_TOKEN_SHIFTS: Final = 2
"""Columns that RWKV keeps of the last token where the file does not say."""
_KDA_COLUMNS: Final = 3
"""Columns of the convolution that Kimi's linear attention keeps by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """Memory of one layer, in elements."""

    keys: int = 0
    """Elements of the keys of one token."""
    values: int = 0
    indexer_keys: int = 0
    windowed: bool = False
    """Whether only a window of the context is kept."""
    state: int = 0
    """Elements of the state of one request."""


def layers_of(facts: GgufFacts) -> tuple[LayerMemory, ...]:
    """Return the memory of each layer of the file; the last ones may only draft.

    Raises:
        UnknownError: a value makes no sense.
    """
    architecture = architecture_of(facts.architecture)
    if architecture.encoder or facts.value("attention.causal") is False:
        return (LayerMemory(),) * facts.blocks
    return tuple(_layers(facts, architecture))


def window_of(facts: GgufFacts) -> int:
    """Return the tokens of the window; 0: no layer has one."""
    architecture = architecture_of(facts.architecture)
    only = architecture.windows_only_with
    if only and facts.layers != only:
        return 0
    found = facts.number("attention.sliding_window")
    return architecture.window if found is None else found


def _layers(facts: GgufFacts, architecture: Architecture) -> Iterator[LayerMemory]:
    heads = facts.per_layer("attention.head_count_kv", default=facts.heads)
    windowed, recurrent = _windowed(facts, architecture), _recurrent(facts, architecture, heads)
    key, value = _head_sizes(facts)
    swa_key = facts.number("attention.key_length_swa") or key
    swa_value = facts.number("attention.value_length_swa") or value
    latent = bool(
        facts.number("attention.key_length_mla") and facts.number("attention.value_length_mla")
    )
    state, indexed = _state_elements(facts), _indexed(facts)
    indexer_keys = facts.number("attention.indexer.key_length") or 0
    caches = _own_caches(facts, architecture)
    for layer, (count, window) in enumerate(zip(heads, windowed, strict=True)):
        if recurrent[layer] and not architecture.state_beside_cache:
            yield LayerMemory(state=state)
            continue
        kept = count if layer < caches or layer >= facts.layers else 0
        yield LayerMemory(
            keys=kept * (swa_key if window else key),
            values=0 if latent else kept * (swa_value if window else value),
            indexer_keys=indexer_keys if kept and indexed[layer] else 0,
            windowed=window,
            state=state if recurrent[layer] else 0,
        )


def _head_sizes(facts: GgufFacts) -> tuple[int, int]:
    """Return the sizes of a key and a value; by default the embedding's size over the heads."""
    usual = facts.embedding // max(1, *facts.heads)
    key = facts.number("attention.key_length")
    value = facts.number("attention.value_length")
    return (usual if key is None else key), (usual if value is None else value)


def _windowed(facts: GgufFacts, architecture: Architecture) -> tuple[bool, ...]:
    """Return which layers keep a window: the file's list, its period, or the loader's period."""
    nowhere = (False,) * facts.blocks
    if not window_of(facts):
        return nowhere
    name = "attention.sliding_window_pattern"
    listed = facts.marked(name)
    if listed is not None:
        return listed
    period = architecture.period
    if period and type(facts.value(name)) is int:  # only these loaders read a number as a period
        period = facts.number(name) or 0
        if not period:
            return (True,) * facts.layers + nowhere[facts.layers :]
    if not period:
        return nowhere
    dense = 0 if architecture.dense_first else period - 1
    found = tuple(layer % period != dense for layer in range(facts.layers))
    return found + nowhere[facts.layers :]


def _recurrent(
    facts: GgufFacts, architecture: Architecture, heads: tuple[int, ...]
) -> tuple[bool, ...]:
    """Return which layers keep a state: the file's list, an interval, or those without KV heads."""
    if architecture.state_beside_cache:
        return (True,) * facts.blocks
    listed = facts.marked("attention.recurrent_layers")
    if listed is not None:
        return listed
    interval = facts.number("full_attention_interval") or architecture.interval
    if interval:
        return tuple(
            layer < facts.layers and (layer + 1) % interval != 0 for layer in range(facts.blocks)
        )
    if architecture.state_without_ffn:
        wide = facts.per_layer("feed_forward_length", default=(0,))
        return tuple(not n and not width for n, width in zip(heads, wide, strict=True))
    return tuple(not n for n in heads)


def _own_caches(facts: GgufFacts, architecture: Architecture) -> int:
    """Return the number of first layers that have a cache of their own."""
    if architecture.own_caches:
        return architecture.own_caches
    return max(0, facts.blocks - (facts.number("attention.shared_kv_layers") or 0))


def _indexed(facts: GgufFacts) -> tuple[bool, ...]:
    """Return which layers have an indexer of their own; the others use the one before."""
    listed = facts.marked("attention.indexer.types")
    if listed is not None:
        return listed
    trained = facts.number("context_length", most=1 << 40) or 0
    if facts.architecture == _SHARED_INDEXER and trained >= _SHARED_INDEXER_FROM:
        return tuple(
            i < _NOT_SHARING or (i - _NOT_SHARING) % _SHARING == 0 for i in range(facts.blocks)
        )
    return (True,) * facts.blocks


def _state_elements(facts: GgufFacts) -> int:
    """Return the elements of one request's state in a layer: ``n_embd_r`` and ``n_embd_s``."""
    if head := facts.number("wkv.head_size"):
        return ((facts.number("token_shift_count") or _TOKEN_SHIFTS) + head) * facts.embedding
    if short := facts.number("shortconv.l_cache"):
        return facts.embedding * (short - 1)
    kernel = facts.number("ssm.conv_kernel") or 0
    columns = max(0, kernel - 1)
    if head := facts.number("kda.head_dim"):
        heads = facts.heads[0]
        return (3 * (columns if kernel else _KDA_COLUMNS) + head) * heads * head
    inner, size = facts.number("ssm.inner_size") or 0, facts.number("ssm.state_size") or 0
    groups = facts.number("ssm.group_count") or 0
    return columns * (inner + 2 * groups * size) + size * inner
