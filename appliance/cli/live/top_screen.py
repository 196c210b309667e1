"""Screen of `appliance top`: the pages as lines, for any size of the terminal."""

from __future__ import annotations

import io

from appliance.cli.cells import cut, wrapped
from appliance.cli.live.box_sections import (
    alert_section_lines,
    box_lines,
    event_lines,
    gpu_section,
    operation_section,
    profile_names,
    profile_section,
)
from appliance.cli.live.top_controls import TopState, selected
from appliance.cli.operation_follower import plan_lines
from appliance.cli.status_screens import show_one
from appliance.cli.terminal import Style
from appliance.model.amounts import age
from appliance.model.record import Record
from appliance.presentation.alert_texts import delivery_line
from appliance.presentation.box_texts import gateway_lines, header, traffic_text, unread_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Final

    from appliance.cli.live.box_feed import LiveView
    from appliance.cli.terminal import Terminal
    from appliance.model.status import ProfileRow, StatusDocument

_KEYS: Final = "q quit  s switch  l log  enter details  arrows select  p pause  h help"
_FEW_KEYS: Final = "q quit  s switch  l log  h help"
_HELP: Final = (
    "q            quit",
    "up, down     select a profile",
    "enter        its details, and back",
    "l            its log; up, down and the page keys scroll",
    "s            what a switch to it would do; y switches",
    "p            freeze the screen, and go on",
    "h, ?         this page",
    "escape       back",
    "Ctrl-Z       stop; fg goes on",
)


class Size(Record):
    """Size of the terminal in cells."""

    columns: int
    rows: int


class _Section(Record):
    """Lines that belong together."""

    lines: Sequence[str]
    rank: int
    """Sections of a higher rank lose lines first."""
    least: int = 0
    """Lines that are left of it in any case."""
    keeps_end: bool = False
    """Whether the first lines go, not the last ones."""


def top_lines(
    view: LiveView, state: TopState, terminal: Terminal, size: Size, *, now: float, now_s: float
) -> list[str]:
    """Return the lines of the whole screen, none wider than it, as many as it has rows.

    Args:
        view: What is known.
        state: What of it is shown.
        terminal: Its abilities; nothing is written to it.
        size: Of the screen.
        now: Unix seconds.
        now_s: Monotonic seconds, as the view has them.
    """
    body = _page(view, state, terminal, size, now=now, now_s=now_s)
    rows = max(1, size.rows - 1)
    lines = [*body[:rows], *[""] * (rows - len(body)), _footer(view, state, terminal, size)]
    mark = "…" if terminal.unicode else "~"
    # Substitutes for characters may be longer than these.
    return [cut(terminal.shown(line), size.columns, mark) for line in lines[-size.rows :]]


def status_lines(
    draw: Callable[[Terminal], None], terminal: Terminal, size: Size, notice: str = ""
) -> list[str]:
    """Return what `draw` writes on lines for a terminal of a size; the last line counts those left out."""
    lines = [
        line for text in _drawn(draw, terminal) for line in wrapped(text, size.columns, indent=6)
    ]
    lines[:0] = [cut(notice, size.columns)] if notice else []
    if len(lines) > size.rows:
        rest = f"… {len(lines) - size.rows + 1} more lines"
        lines = [*lines[: size.rows - 1], cut(terminal.shown(rest), size.columns)]
    return lines


def notice_of(view: LiveView, terminal: Terminal, *, now_s: float) -> str:
    """Return how long the supervisor was not heard, and why; empty: it is heard."""
    if view.lost_s is None:
        return ""
    return terminal.paint(f"disconnected {age(now_s - view.lost_s)}: {view.trouble}", Style.RED)


def _page(
    view: LiveView, state: TopState, terminal: Terminal, size: Size, *, now: float, now_s: float
) -> Sequence[str]:
    document = view.document
    if state.page == "help":
        return [terminal.paint("appliance top", Style.BOLD), "", *_HELP]
    notice = notice_of(view, terminal, now_s=now_s)
    notices = wrapped(notice, size.columns, indent=2, most=3) if notice else []
    if document is None:
        return notices or ["asking the supervisor ..."]
    name = selected(state, profile_names(document))
    match state.page:
        case "confirm":
            return [*notices, *_confirm_page(view, name, terminal, size)]
        case "log":
            return _log_page(view, state, name, terminal, size)
        case "profile" if name:
            row = next(row for row in document.profiles if row.name == name)
            page = _profile_page(view, document, row, terminal, size, now=now)
            return [*notices, *page]
    head = wrapped(terminal.paint(header(document), Style.BOLD), size.columns, indent=2, most=2)
    sections = [
        _Section([*head, *notices], 0, least=1),
        *_box_sections(view, document, name, terminal, size, now=now, now_s=now_s),
    ]
    return _fitted(sections, size.rows - 1)


def _box_sections(
    view: LiveView,
    document: StatusDocument,
    name: str,
    terminal: Terminal,
    size: Size,
    *,
    now: float,
    now_s: float,
) -> Iterable[_Section]:
    columns = size.columns
    speed, alerts = document.speed, document.alerts
    notes = [speed.note] if speed and speed.note else []
    yield _Section(
        list(operation_section(view, document, terminal, columns=columns, now_s=now_s)),
        1 if document.operation else 5,
        least=2 if document.operation else 0,
        keeps_end=True,
    )
    yield _table(document, terminal, size, name)
    yield _Section(
        list(alert_section_lines(document, terminal, columns=columns, now=now)), 3, least=1
    )
    yield _Section(list(gpu_section(view, document, terminal, columns=columns)), 4)
    small = [
        *box_lines(document, terminal, columns=columns, now=now),
        *(
            line
            for text in (*unread_lines(document), *gateway_lines(document), *notes)
            for line in wrapped(text, columns, indent=2, most=2)
        ),
    ]
    yield _Section(small, 3)
    yield _Section(event_lines(view, columns=columns, now=now), 6, keeps_end=True)
    if alerts:
        yield _Section(wrapped(delivery_line(alerts.delivery), columns, indent=2, most=2), 5)


def _table(document: StatusDocument, terminal: Terminal, size: Size, name: str) -> _Section:
    """Return the table of profiles, the selected one always in it."""
    head, table = profile_section(document, terminal, columns=size.columns, selected=name)
    if not table:
        return _Section(["no profile is applied: sudo appliance apply"], 2, least=1)
    most = max(3, (size.rows - 4) // 2)
    names = list(profile_names(document))
    at = names.index(name)
    first, last = at, at + 1
    while True:
        if last < len(table) and sum(map(len, table[first : last + 1])) < most:
            last += 1
        elif first > 0 and sum(map(len, table[first - 1 : last])) < most:
            first -= 1
        else:
            break
    lines = [line for lines in table[first:last] for line in lines]
    hidden = len(table) - (last - first)
    more = [f"   {hidden} more: arrows"] if hidden else []
    return _Section([*head, *lines, *more], 2, least=len(lines) + 1)


def _fitted(sections: Sequence[_Section], rows: int) -> list[str]:
    """Return sections one below the other, with empty lines between them where there is room."""
    kept = [(section, list(section.lines)) for section in sections if section.lines]
    excess = sum(len(lines) for _, lines in kept) - rows
    for section, lines in sorted(kept, key=lambda one: -one[0].rank):
        if excess <= 0:
            break
        drop = min(excess, max(0, len(lines) - section.least))
        del lines[slice(0, drop) if section.keeps_end else slice(len(lines) - drop, None)]
        excess -= drop
    shown = [lines for _, lines in kept if lines]
    spare = rows - sum(map(len, shown))
    page: list[str] = []
    for lines in shown:
        if page and spare > 0:
            page.append("")
            spare -= 1
        page += lines
    return page


def _profile_page(
    view: LiveView,
    document: StatusDocument,
    row: ProfileRow,
    terminal: Terminal,
    size: Size,
    *,
    now: float,
) -> Sequence[str]:
    def draw(out: Terminal) -> None:
        speed, alerts = document.speed or None, document.alerts or None
        show_one(row, out, now=now, speed=speed, alerts=alerts)
        out.line(f"    {traffic_text(document, row.name) or 'traffic none seen'}")
        out.line()
        for label, value in (
            ("about", row.description),
            ("model", row.model),
            ("names", ", ".join(row.served)),
            ("claim", ", ".join(row.claim) or "shared"),
            ("boot", "starts it" if row.committed else "does not start it"),
        ):
            out.line(f"    {label:8}{value}")

    body = [
        line for text in _drawn(draw, terminal) for line in wrapped(text, size.columns, indent=6)
    ]
    events = event_lines(view, columns=size.columns, now=now, name=row.name)
    return _fitted([_Section(body, 1), _Section(events, 2, keeps_end=True)], size.rows - 1)


def _log_page(
    view: LiveView, state: TopState, name: str, terminal: Terminal, size: Size
) -> Sequence[str]:
    rows = max(1, size.rows - 2)
    end = max(len(view.log) - state.scroll, min(rows, len(view.log)))
    lines = [cut(line, size.columns) for line in view.log[max(0, end - rows) : end]]
    where = f", {len(view.log) - end} lines below" if end < len(view.log) else ""
    head = terminal.paint(f"log of {name}{where}", Style.BOLD)
    return [cut(head, size.columns), *(lines or ["nothing is logged yet"])]


def _confirm_page(view: LiveView, name: str, terminal: Terminal, size: Size) -> Iterable[str]:
    yield cut(terminal.paint(f"switch to {name}?", Style.BOLD), size.columns)
    yield ""
    if view.plan is None:
        plan = [view.answer or "asking what it would do ..."]
    else:
        plan = list(plan_lines(view.plan, terminal))
    for line in plan:
        yield from wrapped(line, size.columns, indent=3, most=4)
    yield ""
    yield "y switches, any other key does not"


def _footer(view: LiveView, state: TopState, terminal: Terminal, size: Size) -> str:
    keys = _KEYS if size.columns >= len(_KEYS) else _FEW_KEYS
    if state.is_paused:
        return terminal.paint("paused: p goes on", Style.YELLOW)
    if view.answer and state.page != "confirm":
        return terminal.paint(view.answer, Style.YELLOW)
    return terminal.paint(keys if state.page == "box" else "escape back  q quit", Style.DIM)


def _drawn(draw: Callable[[Terminal], None], terminal: Terminal) -> Sequence[str]:
    """Return the lines that `draw` writes, with the abilities of a terminal."""
    buffer = io.StringIO()
    draw(terminal.replaced(stream=buffer))
    return buffer.getvalue().splitlines()
