"""The table of verbs in the documentation is what the types of the requests say."""

import pytest

from appliance.cli.protocol_reference import PAGE, page


def test_reference_is_current() -> None:
    """docs/reference/control-protocol.md has the verbs, arguments and answers of this release."""
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "run: python -m appliance.cli.protocol_reference"


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    """A page's text that was written by hand is not lost."""
    with pytest.raises(ValueError, match="no place for the table"):
        page("# Control protocol\n")
