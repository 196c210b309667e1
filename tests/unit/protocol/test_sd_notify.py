"""The status text of an engine that loads, as the launcher writes it and the supervisor parses it."""

import pytest

from appliance.protocol.sd_notify import is_load_status, load_status


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
