"""Keys of `appliance top`: what each does on each page, without doing it.

=========  ==============================  ======================================================
page       key                             then
=========  ==============================  ======================================================
every      q                               quit
every      p                               the screen is frozen, or goes on
every      h, ?                            help
box        up, down                        another profile is selected
box        enter                           the selected profile's page
box, its   l                               the profile's log
box, its   s                               the plan of a switch to it, to be confirmed
confirm    y                               the switch is asked for; box
confirm    any other                       box
log        up, down, page-up, page-down    older and newer lines
any other  escape, enter                   back to the box
=========  ==============================  ======================================================
"""

from __future__ import annotations

from appliance.cli.live.full_screen import DOWN, ENTER, ESCAPE, PAGE_DOWN, PAGE_UP, UP
from appliance.model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final, Literal

    Page = Literal["box", "profile", "log", "help", "confirm"]
    Action = Literal["", "quit", "plan", "switch", "log", "end-log"]
else:
    Page = Action = str

_PAGE_LINES: Final = 10
_SCROLLS: Final = {UP: 1, DOWN: -1, PAGE_UP: _PAGE_LINES, PAGE_DOWN: -_PAGE_LINES}


class TopState(Record):
    """State of the screen: the page of `appliance top`, and the profile that it is about."""

    page: Page = "box"
    selected: str = ""
    """Name of a profile; empty: the first one."""
    scroll: int = 0
    """Lines of the log after the last one shown."""
    is_paused: bool = False


class Pressed(Record):
    """State after a key, and what is to be done for it."""

    state: TopState
    action: Action = ""
    name: str = ""
    """Profile that the action is about."""


def press(state: TopState, key: str, names: Sequence[str]) -> Pressed:
    """Return what a key does.

    Args:
        state: State before.
        key: The key, as `appliance.cli.live.full_screen` names it.
        names: Profiles in the order of the screen.
    """
    if key == "q":
        return Pressed(state, "quit")
    if key == "p":
        return Pressed(state.replaced(is_paused=not state.is_paused))
    state = state.replaced(is_paused=False)
    if state.page == "confirm":
        calm = state.replaced(page="box")
        return Pressed(calm, "switch", selected(state, names)) if key == "y" else Pressed(calm)
    if key in {"h", "?"}:
        return _leaving(state, "help")
    is_box = state.page in {"box", "profile"}
    return _press_on_box(state, key, names) if is_box else _press_on_text(state, key)


def selected(state: TopState, names: Sequence[str]) -> str:
    """Return the selected profile; the first one where it is gone, empty where there is none."""
    return state.selected if state.selected in names else next(iter(names), "")


def _press_on_box(state: TopState, key: str, names: Sequence[str]) -> Pressed:
    name = selected(state, names)
    chosen = state.replaced(selected=name)
    match key:
        case "up" | "down" if name:
            at = names.index(name) + (1 if key == DOWN else -1)
            return Pressed(state.replaced(selected=names[max(0, min(at, len(names) - 1))]))
        case "enter":
            return Pressed(chosen.replaced(page="box" if state.page == "profile" else "profile"))
        case "l" if name:
            return Pressed(chosen.replaced(page="log", scroll=0), "log", name)
        case "s" if name:
            return Pressed(chosen.replaced(page="confirm"), "plan", name)
        case "escape":
            return Pressed(state.replaced(page="box"))
        case _:
            return Pressed(state)


def _press_on_text(state: TopState, key: str) -> Pressed:
    if state.page == "log" and key in _SCROLLS:
        return Pressed(state.replaced(scroll=max(0, state.scroll + _SCROLLS[key])))
    return _leaving(state, "box") if key in {ENTER, ESCAPE, "l"} else Pressed(state)


def _leaving(state: TopState, page: Page) -> Pressed:
    """Return a change of the page; what reads a log ends with its page."""
    target = "box" if page == state.page else page
    return Pressed(state.replaced(page=target), "end-log" if state.page == "log" else "")
