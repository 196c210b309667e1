"""Full screen of a terminal: keys from bytes, and no more bytes than a difference needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.cli.live.full_screen import CLEAR, KeyDecoder, ScreenLines
from tests.fakes.screen_emulator import ScreenEmulator


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


COLUMNS, ROWS = 12, 5
LINES = st.lists(
    st.sampled_from(["", "a", "genesis", "x" * COLUMNS, "\u540d\u524d", "\x1b[31mred\x1b[0m"]),
    max_size=ROWS + 2,
)


def full(lines: list[str]) -> list[str]:
    return [*lines[:ROWS], *[""] * (ROWS - len(lines))]


@given(st.lists(st.tuples(LINES, st.integers(1, 200)), min_size=1, max_size=6))
def test_differences_applied_are_the_frames(frames: list[tuple[list[str], int]]) -> None:
    """After all of a frame was sent the terminal shows it; little of it at a time is enough."""
    screen, terminal = ScreenLines(), ScreenEmulator(COLUMNS, ROWS)
    for lines, most_bytes in frames:
        complete = False
        for _ in range(ROWS + 1):
            text, complete = screen.difference(
                lines, columns=COLUMNS, rows=ROWS, most_bytes=most_bytes
            )
            terminal.write(text)
            if complete:
                break
        assert complete
        assert terminal.lines == full(lines)


def test_only_changed_lines_are_written() -> None:
    """An age that counts on costs one line; a frame that is equal costs nothing."""
    screen = ScreenLines()
    frame = ["head", "1 s", "foot"]
    screen.difference(frame, columns=COLUMNS, rows=ROWS, most_bytes=4096)
    assert screen.difference(frame, columns=COLUMNS, rows=ROWS, most_bytes=4096) == ("", True)
    text, _ = screen.difference(
        ["head", "2 s", "foot"], columns=COLUMNS, rows=ROWS, most_bytes=4096
    )
    assert text == "\x1b[2;1H2 s\x1b[K"


def test_every_line_gets_its_turn_on_a_slow_line() -> None:
    """Where each frame differs everywhere and one line fits, no line waits for ever."""
    screen, terminal = ScreenLines(), ScreenEmulator(COLUMNS, ROWS)
    for number in range(ROWS * 2):
        lines = [f"{row}.{number}" for row in range(ROWS)]
        text, _ = screen.difference(lines, columns=COLUMNS, rows=ROWS, most_bytes=1)
        terminal.write(text)
    assert all(int(line.partition(".")[2]) >= ROWS for line in terminal.lines)


def test_another_size_paints_everything() -> None:
    """After a resize nothing on the screen is trusted."""
    screen = ScreenLines()
    screen.difference(["a"], columns=COLUMNS, rows=ROWS, most_bytes=4096)
    text, _ = screen.difference(["a"], columns=COLUMNS + 1, rows=ROWS, most_bytes=4096)
    assert text == f"{CLEAR}\x1b[1;1Ha\x1b[K"
    screen.forget()
    text, _ = screen.difference(["a"], columns=COLUMNS + 1, rows=ROWS, most_bytes=4096)
    assert text.startswith(CLEAR)
