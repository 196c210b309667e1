"""The generated reference is the one in the tree."""

from pathlib import Path

import pytest

from appliance.install.reference import profiles_page, settings_page

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize(
    ("name", "text"), [("settings.md", settings_page()), ("profiles.md", profiles_page())]
)
def test_the_reference_is_current(name: str, text: str) -> None:
    """Each page says what the models say now."""
    assert (REFERENCE / name).read_text("utf-8") == text
