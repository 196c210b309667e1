"""Screens of `appliance top` as stored texts, and what holds for every size.

A meant change is stored anew by ``python -m tests.unit.cli.live.test_top_screen``.
"""

import io
import os
import re
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.cli.cells import width
from appliance.cli.live.top_controls import TopState
from appliance.cli.live.top_screen import Size, status_lines, top_lines
from appliance.cli.status_screens import show_status
from appliance.cli.terminal import Terminal
from tests.fakes.live_views import NOW, NOW_S, VIEWS, planned, quiet, switching

STORED = Path(__file__).parent / "screens"
SIZES = (Size(40, 24), Size(80, 24), Size(120, 30))
PAGES = {
    **{name: (view, TopState()) for name, view in VIEWS.items()},
    "profile": (switching, TopState(page="profile", selected="genesis")),
    "help": (quiet, TopState(page="help")),
    "confirm": (planned, TopState(page="confirm", selected="aeon")),
    "paused": (quiet, TopState(is_paused=True)),
    "scrolled": (VIEWS["many"], TopState(selected="model-100")),
    "log": (
        lambda: quiet().replaced(log=tuple(f"line {n}" for n in range(100))),
        TopState(page="log", selected="genesis", scroll=30),
    ),
}
pytestmark = pytest.mark.usefixtures("here")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def painted(name: str, size: Size, *, colour: bool = False, unicode: bool = True) -> list[str]:
    view, state = PAGES[name]
    terminal = Terminal(stream=io.StringIO(), colour=colour, unicode=unicode, interactive=True)
    return top_lines(view(), state, terminal, size, now=NOW, now_s=NOW_S)


def screens(name: str) -> str:
    """The page in every size, as it is stored."""
    return "".join(
        f"--- {size.columns} x {size.rows}\n"
        + "".join(f"{line.rstrip()}\n" for line in painted(name, size))
        for size in SIZES
    )


@pytest.mark.parametrize("name", PAGES)
def test_screens_are_as_stored(name: str) -> None:
    """Each page at 40, 80 and 120 columns, character for character."""
    assert screens(name) == (STORED / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("name", PAGES)
@given(columns=st.integers(1, 200), rows=st.integers(1, 60), colour=st.booleans())
def test_every_screen_fits(name: str, columns: int, rows: int, *, colour: bool) -> None:
    """In any size there are as many lines as rows, none too wide, and only styles as escapes."""
    lines = painted(name, Size(columns, rows), colour=colour)
    assert len(lines) == rows
    for line in lines:
        assert width(line) <= columns
        assert all(character.isprintable() for character in _STYLE.sub("", line))


@pytest.mark.parametrize("name", PAGES)
def test_ascii_alone_where_the_locale_knows_no_more(name: str) -> None:
    """In the C locale every character is ASCII, and lines still fit."""
    for size in SIZES:
        lines = painted(name, size, unicode=False)
        assert all(line.isascii() and len(line) <= size.columns for line in lines)


def test_colours_say_nothing_that_words_do_not() -> None:
    """Without its styles a coloured screen is the plain one."""
    for name in PAGES:
        coloured = [_STYLE.sub("", line) for line in painted(name, SIZES[1], colour=True)]
        assert coloured == painted(name, SIZES[1])


def test_the_selected_profile_is_always_shown() -> None:
    """Among two hundred the table shows the part around the selected one."""
    for size in SIZES:
        assert any(
            line.startswith(">") and "model-100" in line for line in painted("scrolled", size)
        )


def test_a_status_is_wrapped_and_says_what_is_left_out() -> None:
    """`status --watch` loses no word to a narrow terminal, and counts lines without room."""
    document = switching().document
    assert document is not None
    terminal = Terminal(stream=io.StringIO())

    def draw(out: Terminal) -> None:
        show_status(document, out, now=NOW)

    lines = status_lines(draw, terminal, Size(40, 100))
    assert all(width(line) <= 40 for line in lines)
    assert "python3(4121) 9.0" in " ".join(" ".join(lines).split())
    few = status_lines(draw, terminal, Size(40, 5), "disconnected 3 s")
    assert (few[0], len(few)) == ("disconnected 3 s", 5)
    assert few[-1] == f"… {len(lines) + 1 - 4} more lines"


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    STORED.mkdir(exist_ok=True)
    for page in PAGES:
        (STORED / f"{page}.txt").write_text(screens(page), "utf-8")
    sys.stdout.write(f"{len(PAGES)} pages\n")
