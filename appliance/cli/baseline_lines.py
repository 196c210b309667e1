"""Lines about baselines: levels, bands, and what an accept would make of them."""

from __future__ import annotations

from appliance.presentation.clock_times import local_minute
from appliance.status.speed_row import band_text, change_text, rate_text
from appliance.wire.json_values import Json, number_in, objects_in, text_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    from appliance.cli.terminal import Terminal

UNITS: Final = {"decode": "steps/s", "prefill": "tok/s"}
"""Unit of the rates of each series: without speculative decoding a step makes one token."""
_NAME_WIDTH: Final = 8
_LEARNS: Final = frozenset({"unset", "learning"})


def show_baselines(report: Json, terminal: Terminal) -> None:
    """Print a baseline report (`appliance.speed.speeds.BaselineReport`)."""
    for line in _baseline_lines(report):
        terminal.line(line, hang=_NAME_WIDTH + 1)


def _baseline_lines(report: Json) -> Iterable[str]:
    for series in objects_in(report, "series"):
        name = text_in(series, "series")
        yield f"{name:{_NAME_WIDTH}} {level_text(series)}"
        if change := accept_text(series):
            yield f"{'':{_NAME_WIDTH}} accept would make it {change}"
        for prompt in objects_in(series, "prompts"):
            rate = number_in(prompt, "rate")
            if rate is not None:
                yield f"{'':10} {text_in(prompt, 'prompt'):20} {rate_text(rate):>7}"


def level_text(series: Json) -> str:
    """Return the baseline of a series, with its band and the time of its accept."""
    baseline, unit = number_in(series, "baseline"), UNITS.get(text_in(series, "series"), "")
    if baseline is None:
        learns = text_in(series, "phase") in _LEARNS
        return "no baseline yet: it is being learned" if learns else "no baseline"
    accepted = number_in(series, "accepted_unix_s")
    when = "" if accepted is None else f", accepted {local_minute(accepted)}"
    return f"{band_text(baseline, number_in(series, 'band'))} {unit}{when}"


def accept_text(series: Json) -> str:
    """Return what an accept would change: ``80.3 → 17.9 steps/s, -78 %``; empty: not known."""
    baseline, present = number_in(series, "baseline"), number_in(series, "present")
    change, unit = number_in(series, "change"), UNITS.get(text_in(series, "series"), "")
    if baseline is None or present is None:
        return ""
    how_much = "" if change is None else f", {change_text(change)}"
    return f"{rate_text(baseline)} → {rate_text(present)} {unit}{how_much}"
