"""Keys of `appliance top`: pages, selection, and a switch that asks first."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.cli.live.top_controls import Pressed, TopState, press, selected

NAMES = ("aeon", "genesis", "mini")
KEYS = ["q", "p", "h", "?", "l", "s", "y", "n", "x", "up", "down", "enter", "escape", "page-up"]


def after(keys: Sequence[str], names: Sequence[str] = NAMES) -> Pressed:
    pressed = Pressed(TopState())
    for key in keys:
        pressed = press(pressed.state, key, names)
    return pressed


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ([], "aeon"),
        (["down"], "genesis"),
        (["down"] * 9, "mini"),
        (["down", "down", "up"], "genesis"),
        (["up"], "aeon"),
    ],
)
def test_arrows_select(keys: Sequence[str], name: str) -> None:
    """The selection stops at both ends."""
    assert selected(after(keys).state, NAMES) == name


def test_a_switch_happens_only_after_its_question() -> None:
    """First the plan, then y; any other key is a no."""
    asked = after(["down", "s"])
    assert (asked.state.page, asked.action, asked.name) == ("confirm", "plan", "genesis")
    done = press(asked.state, "y", NAMES)
    assert (done.state.page, done.action, done.name) == ("box", "switch", "genesis")
    for key in KEYS:
        if key not in {"y", "q", "p"}:
            assert press(asked.state, key, NAMES) == Pressed(asked.state.replaced(page="box"))


@given(st.lists(st.sampled_from(KEYS), max_size=30))
def test_no_keys_switch_without_s_and_then_y(keys: list[str]) -> None:
    """A switch is only ever asked for by y on the page that asks."""
    state = TopState()
    for key in keys:
        page = state.page
        pressed = press(state, key, NAMES)
        if pressed.action == "switch":
            assert (page, key) == ("confirm", "y")
        state = pressed.state


def test_the_log_scrolls_and_ends_with_its_page() -> None:
    """Older lines are above; whoever leaves the page ends the reading."""
    log = after(["l"])
    assert (log.state.page, log.action, log.name) == ("log", "log", "aeon")
    older = press(press(log.state, "up", NAMES).state, "page-up", NAMES).state
    assert older.scroll == 11
    assert press(older, "down", NAMES).state.scroll == 10
    for key, page in (("escape", "box"), ("l", "box"), ("h", "help")):
        left = press(older, key, NAMES)
        assert (left.state.page, left.action) == (page, "end-log")


def test_details_help_and_pause_go_back_by_themselves() -> None:
    """Each of these keys undoes itself; the pause ends with any other key."""
    for key, page in (("enter", "profile"), ("h", "help"), ("?", "help")):
        assert after([key]).state.page == page
        assert after([key, key]).state.page == "box"
    assert after(["p"]).state.is_paused
    assert not after(["p", "p"]).state.is_paused
    assert not after(["p", "down"]).state.is_paused


def test_without_profiles_only_the_screen_reacts() -> None:
    """An empty box has nothing to select, to read or to switch to."""
    for key in ("up", "down", "l", "s"):
        assert after([key], ()) == Pressed(TopState())
    assert after(["q"], ()).action == "quit"
    assert selected(TopState(selected="gone"), NAMES) == "aeon"
