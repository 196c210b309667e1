"""Bounds of what is read at all, tried with their real values: coverage would slow these tests down tenfold."""

import pytest

from appliance.routing.json_scanner import BodyError
from tests.fakes.body_parsing import parse_json


def test_a_large_body_may_not_be_made_of_small_values() -> None:
    """A body with more than a million values is refused, since each costs a microsecond."""
    small = b'{"a":[' + b",".join([b"[]"] * 30_000) + b"]}"
    assert parse_json(small).model is None
    large = b'{"a":[' + b",".join([b"[]"] * 1_000_001) + b"]}"
    with pytest.raises(BodyError, match="too many values"):
        parse_json(large)
