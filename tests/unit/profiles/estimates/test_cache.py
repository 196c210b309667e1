"""Bytes of caches, states and checkpoints."""

from dataclasses import replace

import pytest

from appliance.profiles.estimates.cache import CacheSize, LayerBytes, bytes_of
from appliance.profiles.estimates.facts import UnknownError
from appliance.profiles.estimates.layers import LayerMemory

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
