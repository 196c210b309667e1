"""Screens of the status document."""

from __future__ import annotations

from appliance.cli.event_lines import other_alert_lines, profile_alert_lines
from appliance.cli.table import Column, fitted
from appliance.cli.terminal import Style, Terminal
from appliance.model.amounts import size_of_total
from appliance.model.speeds import SpeedReport
from appliance.model.wording import running_sentences
from appliance.presentation.alert_texts import delivery_line
from appliance.presentation.box_texts import (
    SHORT,
    STATE_GLYPHS,
    by_interest,
    committed_text,
    gateway_lines,
    header,
    holder_shares,
    mark_text,
    operation_lines,
    port_text,
    run_lines,
    since_text,
    traffic_text,
    unread_lines,
    watch_lines,
)
from appliance.presentation.speed_texts import figures_text, loss_text
from appliance.status.speed_figures import (
    change_text,
    speed_of,
)
from appliance.wire.json_values import text_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Final

    from appliance.model.status import (
        AlertSection,
        GpuRow,
        ProfileRow,
        SpeedSection,
        StatusDocument,
    )


_ALL_PASS: Final = 0.995
"""Share of canaries from which on none is worth a line."""


def speed_lines(row: SpeedReport, terminal: Terminal, *, now: float) -> Iterable[str]:
    """Return the lines about one profile, the first with its figures."""
    yield figures_text(row, now)
    for series in row.series:
        if series.is_lost:
            yield terminal.paint(loss_text(series, now), Style.YELLOW)
        elif series.is_in_doubt and series.change is not None:
            doubt = f"{series.series} {change_text(series.change)} in the last probes"
            yield terminal.paint(f"{doubt}: watched until it is certain", Style.DIM)
    if row.quality_pass_rate is not None and row.quality_pass_rate < _ALL_PASS:
        passed = f"{row.quality_pass_rate * 100:.0f} % of the canaries passed lately"
        yield terminal.paint(f"quality {passed}", Style.YELLOW)
    if row.trouble:
        yield terminal.paint(row.trouble, Style.YELLOW)


STATE_STYLES: Final = {
    "serving": Style.GREEN,
    "unresponsive": Style.RED,
    "loading": Style.YELLOW,
    "stopping": Style.YELLOW,
    "restarting": Style.YELLOW,
    "failed": Style.RED,
    "refused": Style.RED,
    "stopped": Style.DIM,
}
_VERDICT_STYLES: Final = {
    "serving": Style.PLAIN,
    "degraded": Style.YELLOW,
    "nothing": Style.RED,
}
_INDENT: Final = "    "


def show_status(document: StatusDocument, terminal: Terminal, *, now: float) -> None:
    """Print the whole screen of `appliance status`."""
    terminal.line(header(document))
    terminal.line()
    rows = by_interest(document.profiles)
    widths = _widths(rows)
    vram = _vram_lines(document)
    speed, alerts = document.speed or None, document.alerts or None
    for row in rows:
        _show_profile(row, terminal, widths, now=now)
        _show_speed(row, speed, terminal, now=now)
        if row.state not in SHORT and (said := traffic_text(document, row.name)):
            terminal.line(f"{_INDENT}{said}")
        for line in vram.pop(row.name, ()):
            terminal.line(f"{_INDENT}{line}")
        for line in profile_alert_lines(alerts, row.name, terminal, now=now):
            terminal.line(f"{_INDENT}{line}")
    closing = [
        *vram.pop("", ()),
        *(
            ()
            if document.operation is not None and document.operation.kind == "run"
            else run_lines(document, now)
        ),
        *operation_lines(document),
        *unread_lines(document),
        *gateway_lines(document),
        *_no_speed(rows, speed),
        *watch_lines(document),
        *other_alert_lines(alerts, {row.name for row in rows}, terminal, now=now),
        *_why(document, terminal),
        *_delivery(document),
    ]
    if closing and rows:
        terminal.line()
    for line in closing:
        terminal.line(line)


def show_one(
    row: ProfileRow,
    terminal: Terminal,
    *,
    now: float,
    speed: SpeedSection | None = None,
    alerts: AlertSection | None = None,
) -> None:
    """Print the part of the screen about one profile; with `speed` None without its speed, with `alerts` None without its alerts."""
    _show_profile(row, terminal, _widths([row]), now=now)
    _show_speed(row, speed, terminal, now=now)
    for line in profile_alert_lines(alerts, row.name, terminal, now=now):
        terminal.line(f"{_INDENT}{line}")
    for line in _no_speed([row], speed):
        terminal.line(line)


def show_list(rows: Sequence[ProfileRow], terminal: Terminal) -> None:
    """Print one line for each profile: `appliance list`."""
    cells = [
        [
            f"{_glyph(row, terminal)} {terminal.paint(row.name, Style.BOLD)}",
            terminal.paint(row.state, STATE_STYLES[row.state]),
            committed_text(row),
            _where(row),
            _mark(row),
            row.description,
        ]
        for row in rows
    ]
    columns = (
        Column(least=10),
        Column(),
        Column(),
        Column(spare=1),
        Column(spare=2),
        Column(least=12, spare=3),
    )
    for line in fitted(columns, cells, terminal).lines():
        terminal.line(line)


def _widths(rows: Iterable[ProfileRow]) -> Sequence[int]:
    """Return the widths of the columns name, committed, engine and mark."""
    listed = list(rows)
    columns = (lambda r: r.name, committed_text, _where, _mark)
    return [max((len(column(r)) for r in listed), default=0) for column in columns]


def _columns(row: ProfileRow, terminal: Terminal, widths: Sequence[int]) -> str:
    """Return what serves and what a boot serves; only then whether faults reach anybody."""
    texts = (committed_text(row), _where(row), _mark(row))
    rest = [f"{text:{width}}" for text, width in zip(texts, widths[1:], strict=True) if width]
    name = terminal.paint(f"{row.name:{widths[0]}}", Style.BOLD)
    shown = terminal.paint(f"{row.state:10}", STATE_STYLES[row.state])
    return "  ".join([f"{_glyph(row, terminal)} {name}", shown, *rest])


def _glyph(row: ProfileRow, terminal: Terminal) -> str:
    state = row.state
    retired = row.mark == "retired" and state == "stopped"
    return terminal.paint("⊘" if retired else STATE_GLYPHS[state], STATE_STYLES[state])


def _where(row: ProfileRow) -> str:
    return f"{row.engine} {port_text(row)}"


def _mark(row: ProfileRow) -> str:
    return mark_text(row.mark or "")


def _show_profile(
    row: ProfileRow, terminal: Terminal, widths: Sequence[int], *, now: float
) -> None:
    since = since_text(row.uptime_s, now) if row.state == "serving" else ""
    terminal.line(f"{_columns(row, terminal, widths)}  {since}".rstrip())
    if row.state not in SHORT and row.status_text:
        terminal.line(f"{_INDENT}{row.status_text}")
    if row.note:
        terminal.line(f"{_INDENT}{terminal.paint(row.note, Style.YELLOW)}")


def _show_speed(
    row: ProfileRow, speed: SpeedSection | None, terminal: Terminal, *, now: float
) -> None:
    """Print the speed of a profile that serves, where the health agent measures it."""
    report = None if speed is None else speed.profiles.get(row.name)
    if report is not None and row.state == "serving":
        for line in speed_lines(speed_of(report), terminal, now=now):
            terminal.line(f"{_INDENT}{line}")


def _delivery(document: StatusDocument) -> Iterable[str]:
    if document.alerts:
        yield delivery_line(document.alerts.delivery)


def _no_speed(rows: Iterable[ProfileRow], speed: SpeedSection | None) -> Iterable[str]:
    """Return why speeds of profiles that serve are not known, and what the health agent cannot do."""
    if speed is not None and any(row.state == "serving" for row in rows):
        if speed.note is not None:
            yield speed.note
        reports = speed.profiles.items()
        told = {f"{name}: {text_in(report, 'trouble')}" for name, report in reports}
        yield from (sentence for sentence in speed.trouble if sentence not in told)


def _why(document: StatusDocument, terminal: Terminal) -> Iterable[str]:
    verdict = document.verdict
    told = running_sentences(document.operation)  # by its own line, as no fault
    for sentence in verdict.why:
        if sentence in told:
            continue
        yield terminal.paint(sentence, _VERDICT_STYLES[verdict.state])


def _vram_lines(document: StatusDocument) -> dict[str, list[str]]:
    """Return the holders of each GPU, by the profile under which they are shown; else by ""."""
    gpus = () if document.memory is None else document.memory.gpus
    shown = {row.name for row in document.profiles if row.state not in SHORT}
    lines: dict[str, list[str]] = {}
    for gpu in gpus:
        if not gpu.holders:
            continue
        owners = (holder.profile for holder in gpu.holders if holder.profile in shown)
        owner = next(owners, None) or ""
        which = f"GPU {gpu.index}  " if len(gpus) > 1 else ""
        lines.setdefault(owner, []).append(f"VRAM    {which}{_vram(gpu)}")
    return lines


def _vram(gpu: GpuRow) -> str:
    amount = size_of_total(gpu.used_bytes, gpu.total_bytes) if gpu.total_bytes else "?"
    return f"{amount}  {' · '.join(holder_shares(gpu))}"
