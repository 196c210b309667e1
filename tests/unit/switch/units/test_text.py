"""Unit file text: what is quoted comes back as it was, by systemd's own rules."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.model.errors import ProfileError
from appliance.switch.units.text import (
    Section,
    command_line,
    environment_word,
    path_word,
    plain_line,
    quoted,
    seal_holds,
    sealed,
    sealed_body,
    sections_of,
    text_of,
    words_of,
)

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))
VALUE = st.text(st.characters(blacklist_categories=["Cs", "Cc"]))


def systemd_words(line: str) -> list[str]:
    """The words of `line` as extract_first_word() with UNQUOTE and CUNESCAPE finds them."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    position = 0
    while position < len(line):
        char = line[position]
        position += 1
        if char == "\\":
            code = line[position]
            position += 1
            if code == "x":
                char = chr(int(line[position : position + 2], 16))
                position += 2
            else:
                char = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "'": "'"}[code]
            word = (word or "") + char
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = (word or "") + char
        elif char in "\"'":
            quote = char
            word = word or ""
        elif char in " \t\n\r":
            if word is not None:
                words.append(word)
            word = None
        else:
            word = (word or "") + char
    assert not quote
    return [*words, word] if word is not None else words


def expanded(word: str) -> str:
    """`word` after specifiers and then variables, where only %% and $$ may occur."""
    assert not re.search(r"%", word.replace("%%", ""))
    word = word.replace("%%", "%")
    assert not re.search(r"\$", word.replace("$$", ""))
    return word.replace("$$", "$")


@given(st.lists(TEXT, min_size=1))
def test_any_argument_reaches_the_program_as_it_was(argv: list[str]) -> None:
    """Quotes, dollars, percents, backslashes, spaces and controls survive the unit file."""
    line = command_line(argv)
    assert [expanded(w) for w in systemd_words(line)] == argv
    assert "\n" not in line
    assert not line.endswith("\\")


@given(VALUE)
def test_any_variable_reaches_the_program_as_it_was(value: str) -> None:
    """In Environment= a dollar means nothing and only %% is special."""
    (word,) = systemd_words(environment_word("NAME", value))
    assert word.replace("%%", "%") == f"NAME={value}"


@given(st.lists(TEXT, min_size=1))
def test_our_own_reader_agrees_with_systemd(words: list[str]) -> None:
    """The reader that adopts hand edits finds the words that systemd finds."""
    line = " ".join(quoted(w) for w in words)
    assert list(words_of(line)) == systemd_words(line) == words


@pytest.mark.parametrize(
    ("argument", "written"),
    [
        ("serve", "serve"),
        ("", '""'),
        (";", '";"'),
        ("a b", '"a b"'),
        ("$HOME", "$$HOME"),
        ("50%", "50%%"),
        ("gpu-all:exclusive", "gpu-all:exclusive"),
        ('{"a": 1}', r'"{\"a\": 1}"'),
        ("a\nb", r'"a\nb"'),
        ("\x07", r'"\x07"'),
        ("é", '"é"'),
    ],
)
def test_arguments_are_quoted_only_where_needed(argument: str, written: str) -> None:
    """Arguments are as plain in the unit as systemd allows."""
    assert command_line([argument]) == written


@pytest.mark.parametrize("argument", ["a\0b", "\ud800"])
def test_what_no_unit_file_can_hold_is_refused(argument: str) -> None:
    """NUL and half a surrogate pair are an error of the profile, not a broken unit."""
    with pytest.raises(ProfileError):
        command_line([argument])


@pytest.mark.parametrize(("name", "value"), [("A-B", "x"), ("1A", "x"), ("", "x"), ("A", "\x01")])
def test_variables_that_systemd_would_ignore_are_refused(name: str, value: str) -> None:
    """An assignment that systemd would drop, with a log line alone, is refused."""
    with pytest.raises(ProfileError):
        environment_word(name, value)


@pytest.mark.parametrize(
    ("path", "written"),
    [("/a b", '"-/a b"'), ("/a:b", '"-/a:b"'), ("/a%b", "-/a%%b")],
)
def test_paths_are_quoted_for_lists_and_mounts(path: str, written: str) -> None:
    """A colon outside quotes would be read as the other side of a bind mount."""
    assert path_word(path, "-") == written


@pytest.mark.parametrize("path", ["models", "/a\nb", ""])
def test_paths_that_are_none_are_refused(path: str) -> None:
    """A relative path, or one that breaks the line, is an error."""
    with pytest.raises(ProfileError):
        path_word(path)


@given(TEXT)
@example("ends with \\ \\")
def test_a_description_stays_on_its_line(text: str) -> None:
    """No description ends or joins a line, and none is expanded."""
    line = plain_line(text)
    assert not re.search(r"[\x00-\x1f\x7f]", line)
    assert not line.endswith("\\")
    assert "%" not in line.replace("%%", "")


def test_sections_come_back_as_they_were_written() -> None:
    """Writing and reading a unit are inverse, whatever comments a person adds."""
    sections = (
        Section(name="Unit", entries=(("Description", "a = b"),)),
        Section(name="Service", entries=(("Environment", "A=1"), ("Environment", "B=2"))),
    )
    text = text_of(sections)
    assert sections_of(text) == sections
    assert sections_of("# c\n; d\n" + text.replace("B=2", "B=\\\n# inside\n 2")) == (
        sections[0],
        Section(name="Service", entries=(("Environment", "A=1"), ("Environment", "B= 2"))),
    )


@given(st.text(st.characters(blacklist_categories=["Cs"])), st.integers(0, 200))
def test_a_seal_breaks_with_any_change_below_it(body: str, place: int) -> None:
    """One more character anywhere in the body is noticed; another first line is not."""
    text = sealed(body, source="/p.toml", version="1")
    assert seal_holds(text)
    assert sealed_body(text) == body
    assert seal_holds(text.replace(" 1 ", " 2 ", 1))
    start = len(text) - len(body) + min(place, len(body))
    assert not seal_holds(text[:start] + "x" + text[start:])
