"""Sizes and durations as people write them."""

import pytest

from appliance.model.quantities import duration_s, size_bytes, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("18.6GiB", 19_971_597_926),
        ("512 MiB", 512 << 20),
        ("20GB", 20 * 10**9),
        ("1KB", 1000),
        ("5B", 5),
        ("2TiB", 2 << 40),
        ("20", None),
        ("", None),
        ("GiB", None),
        ("-1GiB", None),
        ("1e9B", None),
        ("1 GiB ", None),
        ("1GiB\n", None),
        ("\u0661GiB", None),
        ("1gib", None),
    ],
)
def test_a_size_needs_its_unit(text: str, size: int | None) -> None:
    """Binary and decimal units are told apart; a bare number other than 0 is no size."""
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (64 << 20, "64MiB"),
        (3 << 40, "3TiB"),
        (1536, "1536B"),
        (2048, "2KiB"),
        (19_971_597_926, "18.600000GiB"),
    ],
)
def test_a_size_is_written_as_it_is_read(size: int, text: str) -> None:
    """A size that a command shows may be put into a file again."""
    assert size_text(size) == text
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("1d2h3m4s5ms", 93_784.005),
        ("0s", 0),
        ("", None),
        ("5", None),
        ("m", None),
        ("30m1h", None),
        ("-5m", None),
        ("5 m", None),
        ("5m\n", None),
    ],
)
def test_a_duration_is_parts_from_days_to_milliseconds(text: str, seconds: float | None) -> None:
    """Parts stand in order of size, each with its unit."""
    assert duration_s(text) == (None if seconds is None else pytest.approx(seconds))
