"""Status texts of a backend, as the launcher writes them and others parse them."""

import pytest

from appliance.wire.sd_notify import (
    is_load_status,
    is_patch_failure,
    load_status,
    patch_failure,
)


@pytest.mark.parametrize("details", ["", "4.2 GiB resident, 12 s", "http://: 503", "loading"])
def test_every_text_that_is_written_is_parsed(details: str) -> None:
    """A text with any details says that the engine loads."""
    assert is_load_status(load_status(details))


@pytest.mark.parametrize(
    "text", ["", "serving on :8022", "reloading", "loading 3 of 9 GiB", "Loading", " loading"]
)
def test_other_texts_are_none(text: str) -> None:
    """An engine's own words, and what the gate says, decide nothing."""
    assert not is_load_status(text)


def test_a_patch_that_failed_is_parsed() -> None:
    """A text with any problem says that the engine was not patched, and no other text does."""
    assert is_patch_failure(patch_failure("not reported as applied: P4"))
    assert not is_load_status(patch_failure("x"))
    assert not any(map(is_patch_failure, ["", "applying patches", load_status(), "Not patched: x"]))
