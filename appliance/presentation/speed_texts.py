"""Texts about the measured speed of a profile."""

from __future__ import annotations

import time

from appliance.model.amounts import age
from appliance.model.speeds import SeriesSpeed, SpeedReport
from appliance.model.words import ProbeOutcome
from appliance.status.speed_figures import (
    DECODE,
    PREFILL,
    band_text,
    change_text,
    rate_text,
    sparkline,
)


def loss_text(series: SeriesSpeed, now: float) -> str:
    """Return the sentence about a loss: how much, since when, and why."""
    change = "slower" if series.change is None else change_text(series.change)
    since = "" if series.since_unix_s is None else f" since {_moment(series.since_unix_s, now)}"
    recovers = ", recovering" if series.phase == "recovering" else ""
    cause = series.cause_text or series.cause or "cause unknown"
    return f"▼ {series.series} {change}{since}{recovers}: {cause}"


def _moment(unix_s: float, now: float) -> str:
    return f"{time.strftime('%a %H:%M', time.localtime(unix_s))} ({age(now - unix_s)})"


def figures_text(row: SpeedReport, now: float) -> str:
    """Return the line with rate, baseline, last rates, time to the first token and age."""
    decode = row.of(DECODE)
    if decode is None or decode.rate is None:
        return f"speed   {_unmeasured(row, now)}{_next(row, now)}"
    parts = [f"{rate_text(decode.rate)} tok/s", baseline_text(decode)]
    if decode.rates:
        parts.append(sparkline(decode.rates, decode.baseline))
    if row.ttft_s is not None:
        parts.append(f"TTFT {row.ttft_s:.2f} s")
    parts.append(probe_age_text(row, now))
    return f"speed   {'  '.join(part for part in parts if part)}"


def baseline_text(series: SeriesSpeed) -> str:
    """Return the baseline with its band: ``baseline 41.0 ±1.2``."""
    if series.baseline is None:
        return "no baseline yet"
    return f"baseline {band_text(series.baseline, series.band)}"


def _unmeasured(row: SpeedReport, now: float) -> str:
    """Return why there is no rate of decoding: no probe, none that is valid, or none that counts."""
    last = row.last_probe_unix_s if row.last_valid_unix_s is None else row.last_valid_unix_s
    if last is None:
        return "not measured yet"
    prefill, probed = row.of(PREFILL), f"the last {age(now - last)} ago"
    if prefill is not None and prefill.rate is not None:
        return f"prefill {rate_text(prefill.rate)} tok/s, decode not measured yet"
    if row.last_valid_unix_s is not None or row.last_outcome is ProbeOutcome.VALID:
        # The first probes after a start are slower than those to come, and are discarded.
        return f"warming up: valid probes do not count yet ({probed})"
    return f"no valid probe yet ({probed}: {_outcome(row)})"


def _outcome(row: SpeedReport) -> str:
    return (row.last_outcome or "").replace("-", " ")


def _next(row: SpeedReport, now: float) -> str:
    if row.waiting:
        return f": {row.waiting}"
    if row.next_probe_unix_s is None:
        return ""
    return f": next probe in {age(row.next_probe_unix_s - now)}"


def probe_age_text(row: SpeedReport, now: float) -> str:
    """Return the age of the last valid probe, and the outcome of a later one."""
    valid, last = row.last_valid_unix_s, row.last_probe_unix_s
    if valid is None:
        return ""
    if last is None or last <= valid or not row.last_outcome:
        return f"(probe {age(now - valid)} ago)"
    return f"(valid probe {age(now - valid)} ago, the last {age(now - last)} ago: {_outcome(row)})"
