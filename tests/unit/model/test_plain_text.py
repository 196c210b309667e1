"""Text of others without what a terminal obeys, and the lines of journalctl."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.cli.terminal import json_text
from appliance.model.plain_text import MOST_TOLD, JournalLines, abridged, last_redraw, plain
from appliance.status.log_excerpt import excerpt, short_line
from appliance.wire.journal_socket import entry_head

HEAD = "Nov 28 06:36:16 garage vllm[12]: "


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loaded 12 of 18 GiB ✓", "loaded 12 of 18 GiB ✓"),
        ("\x1b[1;31mERROR\x1b[0m no memory", "ERROR no memory"),
        ("\x1b[38;5;208mI\x1b[m \x1b[2K\x1b[1Aup", "I up"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("\x9b31mred", "red"),
        ("\x1b]0;without an end", "0;without an end"),
        ("\x1b[without an end", "ithout an end"),
        ("ends with \x1b", "ends with "),
        ("a\tb\nc\xa0d", "a b c d"),
        ("\x00\x07\x7f\x85\u2028", "???  "),
        ("\u202eevil\u2066\u200f\u061c", "?evil???"),
        ("\udcff", "?"),
    ],
)
def test_nothing_is_left_that_a_terminal_obeys(text: str, shown: str) -> None:
    """Escape sequences are gone; of other control and bidirectional characters a mark is left."""
    assert plain(text) == shown


@given(st.text(st.sampled_from("\x1b[]0;m\x07\\ a\r\n\u202e\x9b")))
def test_every_text_becomes_printable(text: str) -> None:
    """In one pass: the second changes nothing."""
    assert plain(text).isprintable()
    assert plain(plain(text)) == plain(text)


@pytest.mark.parametrize(
    "piece", ["\x1b", "\x1b[", "\x1b[0", "\x1b]0", "\x9b;", "\x1b ", "\x1bP", "\r", ": ", "a"]
)
def test_the_time_is_in_proportion_to_the_text(piece: str) -> None:
    """A megabyte of beginnings of sequences takes as long as one of letters, in a small factor."""
    text = piece * (1_000_000 // len(piece))
    began = time.process_time()
    plain(text)
    lines = JournalLines(2000)
    for at in range(0, len(text), 4096):
        lines.take(text[at : at + 4096].encode())
    assert len(lines.end()[0]) <= 2000
    assert time.process_time() - began < 5


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n")), max_size=4), st.data()
)
def test_a_log_is_the_same_in_whatever_pieces_it_comes(
    texts: list[str], data: st.DataObject
) -> None:
    """Pieces end within characters, sequences and redraws too."""
    printed = "".join(f"{HEAD}{text}\n" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(printed)), max_size=5)))
    lines, found = JournalLines(65_536), list[str]()
    for begin, end in zip([0, *cuts], [*cuts, len(printed)], strict=True):
        found += lines.take(printed[begin:end])
    assert found == JournalLines(65_536).take(printed)
    assert len(found) == len(texts)
    assert all(line.startswith(HEAD.rstrip()) for line in found)


def test_a_redrawn_line_shows_what_was_drawn_last() -> None:
    """The head stays; a line that is longer than what is kept ends with its newest redraw."""
    lines = JournalLines(100)
    assert lines.take(f"{HEAD}10%\r\x1b[32m20%\x1b[0m\r\nnext: ".encode()) == [f"{HEAD}20%"]
    for percent in range(100):
        assert lines.take(b"x" * 50 + b"%d%%\r" % percent) == []
    assert lines.take(b"done\n") == ["next: done"]
    assert last_redraw("10%\r20%\r") == "20%"


@pytest.mark.parametrize("text", ["\x7f", "\x9b", "\u202e", "\U000e0041", "a\xa0b", "\udcff"])
def test_json_keeps_every_character_as_an_escape(text: str) -> None:
    """A terminal gets nothing that it obeys, a program the same text."""
    shown = json_text(json.dumps({"text": text}, ensure_ascii=False))
    assert shown.isprintable()
    assert json.loads(shown) == {"text": text}


def test_excerpts_and_journal_entries_are_plain() -> None:
    """The lines of an engine are harmless before it is stored, shown or logged by a daemon."""
    line = "\x1b]0;x\x07\x1b[31mRuntimeError: no \u202ememory\r"
    assert excerpt([line]) == ("RuntimeError: no ?memory",)
    assert short_line(f"1%\r{line}") == "RuntimeError: no ?memory"
    assert dict(entry_head(f"a\n{line}", priority=3, identifier="x"))["MESSAGE"] == (
        "a\nRuntimeError: no ?memory "
    )


def test_a_sentence_is_told_by_its_beginning_and_end() -> None:
    """The fault stands at the beginning of a long sentence, and what to do at its end."""
    told = abridged(f"unknown key {'z' * 100_000}: remove it")
    assert told.startswith("unknown key z")
    assert told.endswith("z: remove it")
    assert len(told) == MOST_TOLD
    assert abridged("z" * MOST_TOLD) == "z" * MOST_TOLD
