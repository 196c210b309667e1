"""Memory of each layer by the header: windows, shared caches, latent attention, indexers, states, and their bytes."""

from dataclasses import replace

import pytest

from appliance.model.model_headers import Gguf, Value
from appliance.profiles.estimates.gguf_layers import (
    CacheSize,
    GgufFacts,
    LayerBytes,
    LayerMemory,
    UnknownError,
    bytes_of,
    layers_of,
    window_of,
)

FULL = LayerMemory(keys=256, values=256)
WINDOWED = LayerMemory(keys=256, values=256, windowed=True)
NONE = LayerMemory()


def facts(architecture: str = "llama", /, **changes: Value) -> GgufFacts:
    """Dimensions of a model with eight layers and four KV heads of 64."""
    keys: dict[str, Value] = {
        "block_count": 8,
        "context_length": 8192,
        "embedding_length": 1024,
        "attention.head_count": 16,
        "attention.head_count_kv": 4,
    }
    keys |= {name.replace("__", "."): value for name, value in changes.items()}
    metadata = {f"{architecture}.{name}": value for name, value in keys.items()}
    return GgufFacts(
        Gguf(metadata=metadata | {"general.architecture": architecture}, tensors=(), file_bytes=0)
    )


def test_layer_keeps_keys_and_values_of_its_heads() -> None:
    """KV heads x head size; head sizes of the file go before the embedding's."""
    assert layers_of(facts()) == (FULL,) * 8
    sizes = facts(attention__key_length=128, attention__value_length=32)
    assert layers_of(sizes)[0] == LayerMemory(keys=512, values=128)
    listed = facts(attention__head_count_kv=(4, 0, 1, 4, 4, 4, 4, 4))
    assert layers_of(listed)[:3] == (FULL, NONE, LayerMemory(keys=64, values=64))


def test_model_without_grouped_heads_has_a_key_for_each_head() -> None:
    """A file that does not say its KV heads has as many as heads."""
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.embedding_length": 1024,
        "llama.attention.head_count": 16,
    }
    found = layers_of(GgufFacts(Gguf(metadata=metadata, tensors=(), file_bytes=0)))
    assert found == (LayerMemory(keys=1024, values=1024),)


@pytest.mark.parametrize("change", [{"attention__causal": False}, {}])
def test_encoder_keeps_nothing(change: dict[str, Value]) -> None:
    """By the file, or by the architecture."""
    architecture = "llama" if change else "bert"
    assert layers_of(facts(architecture, **change)) == (NONE,) * 8


@pytest.mark.parametrize(
    ("architecture", "changes", "full"),
    [
        ("gemma2", {}, {1, 3, 5, 7}),
        ("gemma3", {"attention__sliding_window": 512}, {5}),
        ("gpt-oss", {"attention__sliding_window": 128}, {1, 3, 5, 7}),
        (
            "gemma3",
            {"attention__sliding_window": 512, "attention__sliding_window_pattern": 4},
            {3, 7},
        ),
        (
            "gemma3",
            {"attention__sliding_window": 512, "attention__sliding_window_pattern": 0},
            set(),
        ),
        ("gemma3", {}, set(range(8))),
        ("smallthinker", {}, {0, 4}),
        ("llama4", {"attention__sliding_window": 0}, set(range(8))),
        ("llama4", {}, {3, 7}),
        ("exaone4", {}, set(range(8))),
        ("llama", {"attention__sliding_window": 512}, set(range(8))),
        (
            "llama",
            {"attention__sliding_window": 512, "attention__sliding_window_pattern": 4},
            set(range(8)),
        ),
        (
            "gemma4",
            {
                "attention__sliding_window": 512,
                "attention__sliding_window_pattern": (True, False) * 4,
            },
            {1, 3, 5, 7},
        ),
    ],
)
def test_layers_with_a_window(architecture: str, changes: dict[str, Value], full: set[int]) -> None:
    """The file's list goes before its period, that before the loader's, and without a window none has one."""
    found = layers_of(facts(architecture, **changes))
    assert {i for i, layer in enumerate(found) if not layer.windowed} == full


def test_windows_of_exaone4_are_those_of_its_large_model() -> None:
    """Only a model with 64 layers has windows."""
    assert window_of(facts("exaone4", block_count=64)) == 4096
    assert window_of(facts("exaone4")) == 0


def test_layer_with_a_window_has_its_own_head_sizes() -> None:
    """Gemma 4 keeps fewer heads of twice the size where a layer has the whole context."""
    found = layers_of(
        facts(
            "gemma4",
            attention__head_count_kv=(8, 2) * 4,
            attention__key_length=512,
            attention__value_length=512,
            attention__key_length_swa=256,
            attention__value_length_swa=128,
            attention__sliding_window=1024,
            attention__sliding_window_pattern=(True, False) * 4,
        )
    )
    assert found[0] == LayerMemory(keys=2048, values=1024, windowed=True)
    assert found[1] == LayerMemory(keys=1024, values=1024)


def test_layers_may_share_the_cache_of_earlier_ones() -> None:
    """The last layers have none: as many as the file says, or all after the twentieth."""
    assert layers_of(facts("gemma4", attention__shared_kv_layers=3)) == (FULL,) * 5 + (NONE,) * 3
    found = layers_of(facts("gemma3n", block_count=25))
    assert found == (FULL,) * 20 + (NONE,) * 5


LATENT: dict[str, Value] = {
    "attention__head_count_kv": 1,
    "attention__key_length": 576,
    "attention__value_length": 512,
}


def test_latent_attention_keeps_no_values() -> None:
    """With both sizes of the unfolded heads; a file of before keeps values."""
    unfolded: dict[str, Value] = {
        "attention__key_length_mla": 192,
        "attention__value_length_mla": 128,
    }
    assert layers_of(facts("deepseek2", **LATENT, **unfolded))[0] == LayerMemory(keys=576)
    assert layers_of(facts("deepseek2", **LATENT))[0] == LayerMemory(keys=576, values=512)


def test_sparse_attention_keeps_keys_of_its_indexers() -> None:
    """In every layer, or in those that the file or its trained context marks."""
    sparse: dict[str, Value] = {**LATENT, "attention__indexer__key_length": 128}

    def indexed(architecture: str, **changes: Value) -> list[int]:
        found = layers_of(facts(architecture, **sparse, **changes))
        return [i for i, layer in enumerate(found) if layer.indexer_keys == 128]

    assert indexed("deepseek32") == list(range(8))
    assert indexed("glm-dsa") == list(range(8))
    assert indexed("glm-dsa", context_length=1 << 20) == [0, 1, 2, 6]
    assert indexed("glm-dsa", attention__indexer__types=(1, 0) * 4) == [0, 2, 4, 6]


MAMBA: dict[str, Value] = {
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 64,
    "ssm__state_size": 16,
    "ssm__group_count": 2,
}
STATE = LayerMemory(state=3 * (64 + 2 * 2 * 16) + 16 * 64)


@pytest.mark.parametrize(
    ("architecture", "changes", "attends"),
    [
        ("qwen35", {}, {3, 7}),
        ("llama", {"full_attention_interval": 2}, {1, 3, 5, 7}),
        ("qwen35", {"attention__recurrent_layers": (True,) * 7 + (False,)}, {7}),
        ("jamba", {"attention__head_count_kv": (0, 0, 0, 4, 0, 0, 0, 0)}, {3}),
    ],
)
def test_layers_with_a_state(
    architecture: str, changes: dict[str, Value], attends: set[int]
) -> None:
    """The file's list goes before an interval, and that before layers without KV heads."""
    found = layers_of(facts(architecture, **MAMBA, **changes))
    assert found == tuple(FULL if i in attends else STATE for i in range(8))


def test_layer_may_have_both_or_neither() -> None:
    """Falcon-H1 has a cache and a state in each layer; in Nemotron-H a feed-forward layer has neither."""
    both = layers_of(facts("falcon-h1", **MAMBA))
    assert both == (LayerMemory(keys=256, values=256, state=STATE.state),) * 8
    found = layers_of(
        facts(
            "nemotron_h",
            attention__head_count_kv=(0, 0, 4, 0, 0, 0, 0, 0),
            feed_forward_length=(0, 128, 0, 0, 0, 0, 0, 0),
            **MAMBA,
        )
    )
    assert found[:4] == (STATE, NONE, FULL, STATE)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"wkv__head_size": 64}, (2 + 64) * 1024),
        ({"wkv__head_size": 64, "token_shift_count": 1}, (1 + 64) * 1024),
        ({"shortconv__l_cache": 3}, 2 * 1024),
        ({"kda__head_dim": 32}, (3 * 3 + 32) * 16 * 32),
        ({"kda__head_dim": 32, "ssm__conv_kernel": 3}, (3 * 2 + 32) * 16 * 32),
        ({"ssm__conv_kernel": 4, "ssm__inner_size": 64, "ssm__state_size": 16}, 3 * 64 + 16 * 64),
        ({}, 0),
    ],
)
def test_elements_of_a_state(changes: dict[str, Value], state: int) -> None:
    """RWKV, short convolutions, Kimi's delta attention and Mamba."""
    found = layers_of(facts("kimi-linear", attention__head_count_kv=0, **changes))
    assert found == (LayerMemory(state=state),) * 8


def test_layers_that_draft_attend() -> None:
    """Layers after those that every token passes have a cache, whatever the pattern of the others is."""
    found = layers_of(facts("qwen35", block_count=9, nextn_predict_layers=1, **MAMBA))
    assert found[8] == FULL
    windowed = facts("gemma3", block_count=9, nextn_predict_layers=1, attention__sliding_window=512)
    assert [layer.windowed for layer in layers_of(windowed)][5:] == [False, True, True, False]
    every = facts(
        "gemma3",
        block_count=9,
        nextn_predict_layers=1,
        attention__sliding_window=512,
        attention__sliding_window_pattern=0,
    )
    assert [layer.windowed for layer in layers_of(every)] == [True] * 8 + [False]
    shorter = facts(
        "llama", block_count=9, nextn_predict_layers=1, attention__head_count_kv=(4,) * 8
    )
    assert layers_of(shorter)[8] == FULL
    marked = facts(
        "llama",
        block_count=9,
        nextn_predict_layers=1,
        attention__sliding_window=512,
        attention__sliding_window_pattern=(True,) * 8,
    )
    assert [layer.windowed for layer in layers_of(marked)] == [True] * 8 + [False]


@pytest.mark.parametrize(
    "changes",
    [
        {"attention__sliding_window_pattern": (True,), "attention__sliding_window": 4},
        {"attention__sliding_window": -1},
        {"attention__indexer__key_length": "x"},
    ],
)
def test_lists_that_are_too_short_and_odd_values_are_refused(changes: dict[str, Value]) -> None:
    """A header that lies has no layers."""
    with pytest.raises(UnknownError):
        layers_of(facts("llama", **changes))


SIZE = CacheSize(tokens=4000, caches=2, requests=2, window=1000, batch=512)
LAYER = LayerMemory(keys=64, values=32)


def of(layer: LayerMemory, size: CacheSize = SIZE) -> LayerBytes:
    """Return the bytes of one layer."""
    return bytes_of((layer,), size)[0]


def test_cache_has_padded_cells_for_each_request() -> None:
    """4000 tokens are 4096 cells, in each of two caches."""
    assert of(LAYER).cache == of(LAYER).least == 2 * 4096 * (64 + 32) * 2
    assert of(LAYER, replace(SIZE, caches=1)).cache == 4096 * (64 + 32) * 2


@pytest.mark.parametrize(
    ("size", "cells"),
    [
        (SIZE, 2 * 1536),
        (replace(SIZE, caches=1), 2560),
        (replace(SIZE, tokens=900), 2 * 1024),
        (replace(SIZE, tokens=900, caches=1, batch=0), 1024),
    ],
)
def test_windowed_cache_has_room_for_a_batch(size: CacheSize, cells: int) -> None:
    """Window and batch, padded; a shared cache has a window for each request; never more than the context."""
    assert of(replace(LAYER, windowed=True), size).cache == cells * (64 + 32) * 2


def test_types_of_keys_and_values() -> None:
    """Rows of whole blocks; one type is not known."""
    size = replace(SIZE, key_type="q8_0", value_type="q4_0")
    assert of(LAYER, size).cache == 2 * 4096 * (2 * 34 + 18)
    with pytest.raises(UnknownError, match="the cache type q9 is not known"):
        of(LAYER, replace(SIZE, key_type="q9"))


def test_values_without_flash_attention_are_as_wide_as_the_widest() -> None:
    """Transposed values are stored for the widest layer, but where there are none."""
    wide, none = LayerMemory(keys=64, values=64), LayerMemory(keys=64)
    found = bytes_of((LAYER, wide, none), replace(SIZE, transposed=True))
    assert [layer.cache for layer in found] == [2 * 4096 * n * 2 for n in (128, 128, 64)]
    assert bytes_of((), replace(SIZE, transposed=True)) == ()


def test_state_is_copied_for_each_draft() -> None:
    """Four bytes an element, for each request and each token that a step drafts."""
    layer = LayerMemory(state=100)
    assert of(layer).state == 2 * 400
    drafting = of(layer, replace(SIZE, drafts=3))
    assert (drafting.state, drafting.least) == (2 * 400 * 4, 2 * 400)


def test_indexers_are_no_part_of_the_least() -> None:
    """Older builds keep no keys of indexers."""
    found = of(replace(LAYER, indexer_keys=16))
    assert (found.cache, found.least) == (2 * 4096 * 112 * 2, 2 * 4096 * 96 * 2)


def test_checkpoint_has_the_state_and_the_window_of_one_request() -> None:
    """A layer with the whole context is in no checkpoint."""
    assert of(LAYER).checkpoint == 0
    assert of(LayerMemory(state=100)).checkpoint == 400
    assert of(replace(LAYER, windowed=True)).checkpoint == 1536 * 96 * 2
