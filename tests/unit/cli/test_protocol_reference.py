"""The tables of verbs and events in the documentation are what the types of the sockets say."""

from pathlib import Path

import pytest

from appliance.cli.protocol_reference import PAGES, page


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_reference_is_current(path: Path) -> None:
    """The pages have the verbs, arguments, answers and events of this release."""
    text = path.read_text("utf-8")
    assert page(path.name, text) == text, "run: python -m appliance.cli.protocol_reference"


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    """A page's text that was written by hand is not lost."""
    with pytest.raises(ValueError, match="no place for the table"):
        page("control-protocol.md", "# Control protocol\n")
