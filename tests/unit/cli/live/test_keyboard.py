"""Keys from the bytes of a terminal, however these are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.cli.live.keyboard import KeyDecoder


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"\x1bOA\x1bOB", ["up", "down"]),
        (b"\x1b[5~\x1b[6~", ["page-up", "page-down"]),
        (b"\r", ["enter"]),
        (b"\x7f", ["escape"]),
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b[A", ["escape", "up"]),
        (b"\x1bq", ["escape", "q"]),
        (b"\x1b[1;5A", []),
        (b"\x1b[200~sy", ["s", "y"]),
        ("\u00e4\u540d".encode(), []),
        (b"\x00\x01\x1f", []),
    ],
)
def test_keys_of_one_reading(data: bytes, keys: list[str]) -> None:
    """Letters are themselves, sequences have names, and what is unknown is no key."""
    assert KeyDecoder().keys(data) == keys


def test_a_sequence_may_come_in_two_readings() -> None:
    """On a slow line the end of a sequence comes later."""
    decoder = KeyDecoder()
    assert (decoder.keys(b"\x1b["), decoder.keys(b"A")) == ([], ["up"])


@given(st.binary(max_size=200))
def test_anything_is_survived(data: bytes) -> None:
    """No bytes are an error, and what follows them is understood again."""
    decoder = KeyDecoder()
    decoder.keys(data)
    decoder.keys(b"~" + b"\x1f" * 20 + b"~")
    assert decoder.keys(b"q")[-1:] == ["q"]
