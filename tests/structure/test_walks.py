"""The walks of docs/explanation/walks.md go through code that exists."""

from pathlib import Path

import pytest

from tests.structure.walks import PAGE, files_of, missing_names, walks

ROOT = Path(__file__).parents[2]
WALKS = walks((ROOT / PAGE).read_text("utf-8"))


@pytest.mark.parametrize("hop", [hop for hops in WALKS.values() for hop in hops])
def test_every_name_of_a_walk_exists(hop: str) -> None:
    """A module and what it defines, as the page spells them."""
    assert list(missing_names(hop, ROOT / "appliance")) == []


def test_a_name_that_does_not_exist_is_found() -> None:
    """Neither a missing module nor a missing class passes."""
    hop = "1. `model.names.unit_of`, `model.names.unit_off`, `model.namez.unit_of`, `model.names`"
    assert list(missing_names(hop, ROOT / "appliance")) == [
        "model.names.unit_off",
        "model.namez.unit_of",
    ]


def test_files_of_a_walk() -> None:
    """Each module counts once, whether a hop names it or something in it."""
    hops = ["1. `model.names.unit_of` and `model.names`", "2. `model.errors.StoreError`"]
    assert files_of(hops, ROOT / "appliance") == ["model.names", "model.errors"]
