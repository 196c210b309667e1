"""Text in cells: hostile and wide characters, cuts and wraps of painted text."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.cli.cells import cut, folded, harmless, padded, printable, width, wrapped

STYLES = st.sampled_from(["", "\x1b[1m", "\x1b[31m", "\x1b[0m"])
PAINTED = st.lists(st.tuples(STYLES, st.text(max_size=8)), max_size=8).map(
    lambda parts: "".join(style + printable(text) for style, text in parts)
)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("genesis", "genesis"),
        ("a\x1b[2J\x1b]0;title\x07b", "ab"),
        ("a\tb\nc\r", "a b c "),
        ("\u202eevil\u2066", "?evil?"),
        ("e" + "\u0301" * 50, "e\u0301\u0301"),
        ("\u540d\u524d", "\u540d\u524d"),
        ("\udcff", "?"),
    ],
)
def test_nothing_in_a_text_moves_the_cursor(text: str, shown: str) -> None:
    """Control characters, text directions and stacks of accents are gone; letters stay."""
    assert printable(text) == shown


def test_a_document_is_made_printable_throughout() -> None:
    """Texts in lists, in objects and as keys; other values are as they were."""
    found = harmless({"a\x07": ["b\x07", {"c": "d\n"}, 3, None, True]})
    assert found == {"a?": ["b?", {"c": "d "}, 3, None, True]}


@pytest.mark.parametrize(
    ("text", "cells"), [("abc", 3), ("\u540d\u524d", 4), ("e\u0301", 1), ("\x1b[31mred\x1b[0m", 3)]
)
def test_width_counts_cells(text: str, cells: int) -> None:
    """Chinese characters take two cells, accents and styles none."""
    assert width(text) == cells


@pytest.mark.parametrize(
    ("text", "columns", "short"),
    [
        ("genesis", 7, "genesis"),
        ("genesis", 6, "genes\u2026"),
        ("\u540d\u524d\u540d", 4, "\u540d\u2026"),
        ("\x1b[31mgenesis\x1b[0m", 4, "\x1b[31mgen\x1b[0m\u2026"),
        ("genesis", 0, ""),
    ],
)
def test_a_cut_is_marked_and_ends_its_style(text: str, columns: int, short: str) -> None:
    """A wide character is never cut in half, and no style goes on after the text."""
    assert cut(text, columns) == short


@given(PAINTED, st.integers(0, 20))
def test_a_cut_fits(text: str, columns: int) -> None:
    """A cut of any text is no wider, and one that fits says the same."""
    short = cut(text, columns)
    assert width(short) <= columns
    if width(text) <= columns:
        assert plain(short) == plain(text)
    assert width(padded(text, columns)) == columns


@given(PAINTED, st.integers(4, 20), st.integers(0, 2))
def test_wrapped_lines_fit_and_say_everything(text: str, columns: int, indent: int) -> None:
    """No line is wider than the screen, and no character but spaces is lost."""
    lines = wrapped(text, columns, indent=indent, most=1000)
    assert all(width(line) <= columns for line in lines)
    assert plain("".join(lines)).replace(" ", "") == plain(text).replace(" ", "")


def test_lines_break_at_spaces() -> None:
    """A word stays whole where it fits; its style goes on on the next line."""
    assert wrapped("\x1b[31mone two three\x1b[0m", 8, indent=2) == [
        "\x1b[31mone two\x1b[0m",
        "  \x1b[31mthree\x1b[0m",
    ]


def test_a_huge_text_takes_no_longer_than_its_beginning() -> None:
    """Cutting a mebibyte looks at the beginning only; making it printable is linear."""
    text = "\u540d" * (1 << 20)
    began = time.process_time()
    assert width(cut(text, 80)) == 79
    assert len(wrapped(text, 80)) == 20
    assert time.process_time() - began < 0.5
    began = time.process_time()
    printable("\x1b" * (1 << 20))
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("fits", 4, ["fits"]),
        ("", 4, [""]),
        ("one two three", 8, ["one two", "  three"]),
        ("    one two three", 13, ["    one two", "      three"]),
        ("RAM 16 of 32 GiB · up 3 s", 21, ["RAM 16 of 32 GiB ·", "  up 3 s"]),
        ("RAM 16 of 32 GiB - up 3 s", 21, ["RAM 16 of 32 GiB -", "  up 3 s"]),
        ("- a line that begins so", 14, ["- a line that", "  begins so"]),
        ("aeon  serving  vllm :8023", 18, ["aeon  serving", "  vllm :8023"]),
        ("a · long sentence goes on", 18, ["a · long sentence", "  goes on"]),
        (
            "see /etc/appliance/profiles for it",
            12,
            ["see", "  /etc/appliance/profiles", "  for it"],
        ),
        ("/etc/appliance/profiles", 12, ["/etc/appliance/profiles"]),
        ("it needs 14.5 GiB", 13, ["it needs", "  14.5 GiB"]),
        ("4096 GiB", 6, ["4096", "  GiB"]),
        ("it ran for 1 min 40 s", 17, ["it ran for", "  1 min 40 s"]),
        ("in 5 min all of it", 9, ["in 5 min", "  all of", "  it"]),
        ("the min 40 s", 8, ["the min", "  40 s"]),
        ("\x1b[31mone two three\x1b[0m", 8, ["\x1b[31mone two\x1b[0m", "  \x1b[31mthree\x1b[0m"]),
    ],
)
def test_lines_are_folded_between_parts_or_words(text: str, columns: int, lines: list[str]) -> None:
    """Each word stays whole; where two parts meet in a line's second half, it ends there."""
    assert folded(text, columns) == lines


@given(PAINTED, st.integers(4, 20), st.integers(0, 2))
def test_folded_lines_fit_or_are_one_word(text: str, columns: int, hang: int) -> None:
    """Every character but spaces is kept."""
    lines = folded(text, columns, hang=hang)
    assert all(width(line) <= columns or " " not in plain(line).strip() for line in lines)
    assert plain("".join(lines)).replace(" ", "") == plain(text).replace(" ", "")


def test_a_huge_line_is_folded_in_linear_time() -> None:
    """A mebibyte of words, and one of a single word."""
    began = time.process_time()
    assert len(folded("word " * (1 << 18), 80)) == 17_477
    assert folded("w" * (1 << 20), 80) == ["w" * (1 << 20)]
    assert time.process_time() - began < 20.0
