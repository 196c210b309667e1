"""Sections of the live screen: operation, profiles, GPUs, alerts, events.

Three widths: below `NARROW` a phone in upright position, from `WIDE` on a window of its own.
"""

from __future__ import annotations

from appliance.cli.cells import cut, padded, width, wrapped
from appliance.cli.event_lines import STYLES, alert_event_line, event_line
from appliance.cli.progress_lines import phase_line
from appliance.cli.status_screens import STATE_STYLES
from appliance.cli.terminal import Style
from appliance.model.amounts import age, duration, size_of_total
from appliance.model.events import AlertEvent
from appliance.model.record import Record
from appliance.model.speeds import SpeedReport
from appliance.presentation.alert_texts import (
    alert_glyph,
    alert_severity,
    alert_text,
    moment,
    subject_name,
)
from appliance.presentation.box_texts import (
    STATE_GLYPHS,
    by_interest,
    committed_text,
    holder_shares,
    mark_text,
    operation_lines,
    operation_text,
    port_text,
    progress_text,
    run_lines,
)
from appliance.status.speed_figures import (
    DECODE,
    band_text,
    rate_text,
    sparkline,
    speed_of,
)
from appliance.wire.json_values import Json, number_in, text_in, texts_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Final

    from appliance.cli.live.box_feed import LiveView, OperationProgress
    from appliance.cli.terminal import Terminal
    from appliance.model.events import MeasuredEvent
    from appliance.model.status import ProfileRow, StatusDocument, TrafficRow

NARROW: Final = 60
"""Columns below which a row has the most important figures only."""
WIDE: Final = 100
"""Width from which a row also has where and since when a profile serves."""
_NAME_HEAD: Final = "PROFILE"
_BARS: Final = 8
_LABELS: Final = {"narrow": 18, "usual": 24, "wide": 24}
_PHASE_MARGINS: Final = 13
"""Cells of a phase's line beside its label and its text: glyph, spaces, duration."""
_GLYPHS: Final = {"done": "✓", "failed": "✗", "skipped": "·"}
_PHASE_STYLES: Final = {"done": Style.GREEN, "failed": Style.RED, "skipped": Style.DIM}


def size_class(columns: int) -> str:
    """Return which of the three layouts fits."""
    if columns < NARROW:
        return "narrow"
    return "wide" if columns >= WIDE else "usual"


def operation_section(
    view: LiveView, document: StatusDocument, terminal: Terminal, *, columns: int, now_s: float
) -> Iterable[str]:
    """Return the lines on the running operation with its phases, else on the last one."""
    running, told = document.operation, view.operation
    if running is None or told is None:
        yield from (cut(line, columns) for line in operation_lines(document))
        return
    elapsed_s = running.elapsed_s + max(0.0, now_s - view.received_s)
    usual = told.accepted.usual_ms
    parts = [operation_text(running), duration(elapsed_s)]
    parts += [f"usually {duration(usual / 1000)}"] if usual else []
    yield cut(terminal.paint(" · ".join(parts), Style.BOLD), columns)
    yield from _phases(told, terminal, columns=columns, now_s=now_s)
    if told.running is not None and told.running.phase == running.phase:
        yield from (cut(f"   {text}", columns) for text in [progress_text(running)] if text)


def _phases(
    told: OperationProgress, terminal: Terminal, *, columns: int, now_s: float
) -> Iterable[str]:
    label = _LABELS[size_class(columns)]
    text = max(0, min(40, columns - label - _PHASE_MARGINS))
    for event in told.ended:
        glyph = terminal.paint(_GLYPHS.get(event.state, "·"), _PHASE_STYLES.get(event.state, ""))
        short = event.replaced(text=cut(event.text.partition("\n")[0], text))
        line = phase_line(short, glyph, event.ms / 1000, label_width=label, text_width=text)
        yield cut(line, columns)
    if told.running is not None:
        event = told.running
        short = event.replaced(text=cut(event.text, text))
        line = phase_line(short, "◐", now_s - told.since_s, label_width=label, text_width=text)
        yield cut(terminal.paint(line, Style.YELLOW), columns)
        if width(event.text) > text:
            yield from wrapped(f"   {event.text}", columns, indent=3, most=2)


# --- profiles ------------------------------------------------------------------------


def profile_names(document: StatusDocument | None) -> Sequence[str]:
    """Return the names in the order of the screen."""
    return [] if document is None else [row.name for row in by_interest(document.profiles)]


def profile_section(
    document: StatusDocument, terminal: Terminal, *, columns: int, selected: str
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return the head of the table, and the lines of each profile."""
    rows = by_interest(document.profiles)
    longest = max((width(row.name) for row in rows), default=0)
    names, shown = _columns_for(columns, longest)
    reports = document.speed.profiles if document.speed else {}
    flows = () if document.gateway is None else document.gateway.profiles
    traffic = {row.name: row for row in flows}
    table = []
    for row in rows:
        speed = speed_of(reports.get(row.name, {}))
        texts = _cells(row, speed, traffic.get(row.name))
        cells = [padded(row.name, names)]
        cells += [padded(texts[column.head], column.cells) for column in shown]
        is_selected = row.name == selected
        text = terminal.paint(" ".join(cells), Style.BOLD if is_selected else Style.PLAIN)
        lines = [cut(f"{'>' if is_selected else ' '}{_state_glyph(row, terminal)} {text}", columns)]
        if columns < NARROW and row.state == "serving":
            lines.append(cut(f"   {_second_line(row, speed)}", columns))
        table.append(lines)
    return [cut(terminal.paint(f"   {_heads(names, shown)}", Style.DIM), columns)], table


def _state_glyph(row: ProfileRow, terminal: Terminal) -> str:
    state = row.state
    glyph = "⊘" if row.mark == "retired" and state == "stopped" else STATE_GLYPHS[state]
    return terminal.paint(glyph, STATE_STYLES[state])


class _Column(Record):
    """Column of the table of profiles, beside their names."""

    head: str
    cells: int
    rank: int
    """Columns of a lower rank are shown first, where there is no room for all."""


_COLUMNS: Final = (
    _Column("STATE", 10, 0),
    _Column("BOOT", 9, 2),
    _Column("REQ", 5, 0),
    _Column("TOK/S", 6, 0),
    _Column("BASELINE", 10, 3),
    _Column("HISTORY", _BARS, 1),
    _Column("TTFT", 6, 4),
    _Column("UP", 6, 5),
    _Column("WHERE", 18, 6),
    _Column("TOLD", 11, 7),
)
_MARGIN: Final = 3
"""Cells before the name: selection, glyph, space."""


def _columns_for(columns: int, longest: int) -> tuple[int, Sequence[_Column]]:
    """Return the width of names, and the columns that fit beside them."""
    least = sum(column.cells + 1 for column in _COLUMNS if column.rank == 0)
    names = min(max(longest, len(_NAME_HEAD)), max(12, columns // 4), columns - _MARGIN - least)
    room = columns - _MARGIN - names
    fitting: set[str] = set()
    for column in sorted(_COLUMNS, key=lambda one: one.rank):
        room -= column.cells + 1
        # On a phone the figures of the second line have their place there.
        if room < 0 or (column.rank and columns < NARROW):
            break
        fitting.add(column.head)
    return max(names, 1), [column for column in _COLUMNS if column.head in fitting]


def _heads(names: int, shown: Sequence[_Column]) -> str:
    return " ".join(
        [padded(_NAME_HEAD, names), *(padded(column.head, column.cells) for column in shown)]
    )


def _cells(row: ProfileRow, speed: SpeedReport, traffic: TrafficRow | None) -> Mapping[str, str]:
    """Return the text of each column."""
    decode = speed.of(DECODE)
    rate = None if decode is None else decode.rate
    if rate is None and traffic is not None:
        rate = traffic.tok_s
    baseline = None if decode is None else decode.baseline
    band = None if decode is None else decode.band
    uptime_s = row.uptime_s if row.state == "serving" else None
    return {
        "BOOT": committed_text(row),
        "TOLD": mark_text(row.mark or ""),
        "STATE": row.state,
        "REQ": _requests(traffic),
        "TOK/S": "" if rate is None else rate_text(rate),
        "BASELINE": "" if baseline is None else band_text(baseline, band),
        "HISTORY": _history(speed),
        "TTFT": _first_token(speed, traffic),
        "UP": "" if uptime_s is None else age(uptime_s),
        "WHERE": f"{row.engine} {port_text(row)}",
    }


def _second_line(row: ProfileRow, speed: SpeedReport) -> str:
    """Return what a narrow row has no room for."""
    decode = speed.of(DECODE)
    parts = [committed_text(row)]
    parts += [age(row.uptime_s)] if row.uptime_s is not None else []
    if decode is not None and decode.baseline is not None:
        parts.append(f"base {rate_text(decode.baseline)}")
    parts.append(_history(speed))
    return " ".join(part for part in parts if part)


def _requests(traffic: TrafficRow | None) -> str:
    """Return requests in flight and held: ``2+1``; empty: not known."""
    if traffic is None:
        return ""
    held = f"+{traffic.queued}" if traffic.queued else ""
    return f"{traffic.in_flight}{held}"


def _history(speed: SpeedReport) -> str:
    decode = speed.of(DECODE)
    return "" if decode is None else sparkline(decode.rates[-_BARS:], decode.baseline)


def _first_token(speed: SpeedReport, traffic: TrafficRow | None) -> str:
    first_ms = None if traffic is None else traffic.ttft_ms
    seconds = first_ms.p50 / 1000 if first_ms is not None and first_ms.p50 else speed.ttft_s
    return "" if seconds is None else f"{seconds:.2f} s"


# --- GPUs ----------------------------------------------------------------------------


def gpu_section(
    view: LiveView, document: StatusDocument, terminal: Terminal, *, columns: int
) -> Iterable[str]:
    """Return the lines on each GPU: memory, use, heat and power, and who holds memory."""
    states = {number_in(one, "index"): one for one in view.gpus}
    for gpu in () if document.memory is None else document.memory.gpus:
        state = states.get(gpu.index, {})
        parts = [f"GPU {gpu.index}"]
        used, total = gpu.used_bytes, gpu.total_bytes
        kind = size_class(columns)
        if kind != "narrow":
            parts.append(cut(gpu.name, 24))
        if total:
            parts += [] if kind == "narrow" else [_bar(used / total, 20 if kind == "wide" else 10)]
            parts.append(size_of_total(used, total))
        parts += _gpu_figures(state)
        yield cut("  ".join(parts), columns)
        if gpu.holders:
            shares = f"      {' · '.join(holder_shares(gpu))}"
            yield from wrapped(shares, columns, indent=6, most=2)
        if problem := text_in(state, "problem"):
            yield cut(f"      {terminal.paint(problem, Style.RED)}", columns)
        if hot := [r for r in texts_in(state, "throttle_reasons") if "thermal" in r]:
            yield cut(
                f"      {terminal.paint('throttled: ' + ', '.join(hot), Style.YELLOW)}", columns
            )


def _gpu_figures(state: Json) -> Iterable[str]:
    if (busy := number_in(state, "busy_share")) is not None:
        yield f"{busy * 100:.0f} %"
    if (heat := number_in(state, "temperature_c")) is not None:
        yield f"{heat:.0f} °C"
    if (power := number_in(state, "power_w")) is not None:
        yield f"{power:.0f} W"


def _bar(share: float, cells: int) -> str:
    full = round(max(0.0, min(share, 1.0)) * cells)
    return "█" * full + "·" * (cells - full)


# --- alerts and events ---------------------------------------------------------------


def alert_section_lines(
    document: StatusDocument, terminal: Terminal, *, columns: int, now: float
) -> Iterable[str]:
    """Return the lines on alerts that are not over, and what to do about each."""
    section = document.alerts
    for alert in section.alerts if section else ():
        style = STYLES.get(alert_severity(alert), Style.PLAIN)
        name = subject_name(text_in(alert, "subject"))
        text = f"{alert_glyph(alert)} {name} {alert_text(alert, now)}"
        yield from wrapped(terminal.paint(text, style), columns, indent=2, most=2)
        if command := text_in(alert, "command"):
            yield cut(f"  {command}", columns)


def event_lines(view: LiveView, *, columns: int, now: float, name: str = "") -> Sequence[str]:
    """Return a line for each of the last events; of one profile, where `name` is not empty."""
    shown = (one for one in view.events if not name or _subject(one) == name)
    return [cut(_event_line(one, columns, now), columns) for one in shown]


def _event_line(event: MeasuredEvent | AlertEvent, columns: int, now: float) -> str:
    when = moment(event.unix_s, now) if columns < NARROW else None
    if isinstance(event, AlertEvent):
        return alert_event_line(event, when)
    return event_line(event, when)


def _subject(event: MeasuredEvent | AlertEvent) -> str:
    """Return the profile of an event; empty: it is of the box or of something else."""
    if isinstance(event, AlertEvent):
        kind, _, name = event.subject.partition(":")
        return name if kind == "profile" else ""
    return event.profile


def box_lines(
    document: StatusDocument, terminal: Terminal, *, columns: int, now: float
) -> Iterable[str]:
    """Return the lines on a command in place of models, and on why the verdict is as it is."""
    for line in run_lines(document, now):
        yield cut(line, columns)
    style = {"degraded": Style.YELLOW, "nothing": Style.RED}.get(document.verdict.state, "")
    for sentence in document.verdict.why:
        yield from wrapped(terminal.paint(sentence, style), columns, indent=2, most=2)
