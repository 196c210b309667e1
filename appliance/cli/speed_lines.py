"""Lines about the measured speed of a profile on the status screen."""

from __future__ import annotations

import time

from appliance.cli.terminal import Style, Terminal
from appliance.domain.amounts import age
from appliance.planning.status.speed_row import (
    DECODE,
    SeriesRow,
    SpeedRow,
    band_text,
    change_text,
    rate_text,
    sparkline,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

_ALL_PASS: Final = 0.995
"""Share of canaries from which on none is worth a line."""


def speed_lines(row: SpeedRow, terminal: Terminal, *, now: float) -> Iterable[str]:
    """Return the lines about one profile, the first with its figures."""
    yield _figures(row, now)
    for series in row.series:
        if series.is_lost:
            yield terminal.paint(loss_text(series, now), Style.YELLOW)
        elif series.is_in_doubt and series.change is not None:
            doubt = f"{series.series} {change_text(series.change)} in the last probes"
            yield terminal.paint(f"{doubt}: watched until it is certain", Style.DIM)
    if row.quality is not None and row.quality < _ALL_PASS:
        passed = f"{row.quality * 100:.0f} % of the canaries passed lately"
        yield terminal.paint(f"quality {passed}", Style.YELLOW)
    if row.trouble:
        yield terminal.paint(row.trouble, Style.YELLOW)


def loss_text(series: SeriesRow, now: float) -> str:
    """Return the sentence about a loss: how much, since when, and why."""
    change = "slower" if series.change is None else change_text(series.change)
    since = "" if series.since_unix_s is None else f" since {_moment(series.since_unix_s, now)}"
    recovers = ", recovering" if series.phase == "recovering" else ""
    return f"▼ {series.series} {change}{since}{recovers}: {series.cause or 'cause unknown'}"


def _moment(unix_s: float, now: float) -> str:
    return f"{time.strftime('%a %H:%M', time.localtime(unix_s))} ({age(now - unix_s)})"


def _figures(row: SpeedRow, now: float) -> str:
    decode = row.of(DECODE)
    if decode is None or decode.rate is None:
        return f"speed   not measured yet{_next(row, now)}"
    parts = [f"{rate_text(decode.rate)} tok/s", _baseline(decode)]
    if decode.rates:
        parts.append(sparkline(decode.rates, decode.baseline))
    if row.ttft_s is not None:
        parts.append(f"TTFT {row.ttft_s:.2f} s")
    parts.append(_age(row, now))
    return f"speed   {'  '.join(part for part in parts if part)}"


def _baseline(series: SeriesRow) -> str:
    if series.baseline is None:
        return "no baseline yet"
    return f"baseline {band_text(series.baseline, series.band)}"


def _next(row: SpeedRow, now: float) -> str:
    if row.waiting:
        return f": {row.waiting}"
    if row.next_probe_unix_s is None:
        return ""
    return f": next probe in {age(row.next_probe_unix_s - now)}"


def _age(row: SpeedRow, now: float) -> str:
    """Return the age of the last valid probe, and the outcome of a later one."""
    valid, last = row.last_valid_unix_s, row.last_probe_unix_s
    if valid is None:
        return ""
    if last is None or last <= valid or not row.last_outcome:
        return f"(probe {age(now - valid)} ago)"
    outcome = row.last_outcome.replace("-", " ")
    return f"(valid probe {age(now - valid)} ago, the last {age(now - last)} ago: {outcome})"
