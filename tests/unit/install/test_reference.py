"""The generated files are those in the tree."""

from pathlib import Path

import pytest

from appliance.install.reference import GENERATED

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_is_current(name: str) -> None:
    """Each file says what settings, profiles and engines say now."""
    assert (ROOT / name).read_text("utf-8") == GENERATED[name]()
