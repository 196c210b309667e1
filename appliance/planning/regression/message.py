"""Messages about a speed: one sentence for lists and logs, four lines for a phone.

The sentence has no clock times, since it may be read in any time zone, days later. The lines are
made when they are sent::

    ▼ genesis slow: 27.1 tok/s (was 41.0)
    garage · since 04:10 (35 min) · -34 %
    Likely: 9.8 GiB of GPU memory held by python3 (pid 4121)
    Do: appliance status
"""

from collections.abc import Callable
from typing import Final

from appliance.domain.amounts import age
from appliance.domain.measurements import EventKind, MeasurementEvent, Series
from appliance.planning.regression.causes import command_for
from appliance.planning.status.speed_row import change_text, rate_text

_UNKNOWN: Final = "unknown"
_UNITS: Final = {Series.DECODE: "tok/s", Series.PREFILL: "tok/s of prompts"}
_TITLES: Final = {
    EventKind.REGRESSION: "▼ {name} slow",
    EventKind.RECOVERED: "▲ {name} is as fast as before",
    EventKind.LEVEL_AFTER_RESTART: "{name} came back from a restart at another speed",
    EventKind.ACCEPTED: "{name} has a new baseline",
    EventKind.BASELINE_RESET: "{name} has no baseline any more",
    EventKind.NO_VALID_PROBE: "{name} cannot be measured",
    EventKind.VALID_PROBE_AGAIN: "{name} is measured again",
    EventKind.DRAFTS_SILENT: "{name} no longer drafts",
    EventKind.QUALITY_LOST: "▼ {name} answers wrongly",
    EventKind.QUALITY_RECOVERED: "▲ {name} answers rightly again",
    EventKind.CANARIES_REFUSED: "canaries of {name} cannot be read",
    EventKind.STORE_RECOVERED: "measurements were damaged",
}
_LOSSES: Final = frozenset({EventKind.REGRESSION})


def rates(event: MeasurementEvent) -> str:
    """Return the rate of an event beside its baseline: ``27.1 tok/s (was 41.0)``; empty: unknown."""
    if event.series is None or event.rate is None:
        return ""
    was = "" if event.baseline is None else f" (was {rate_text(event.baseline)})"
    return f"{rate_text(event.rate)} {_UNITS[event.series]}{was}"


def loss_sentence(event: MeasurementEvent) -> str:
    """Return the sentence of a loss: how much, for how long, likely cause, command."""
    lasted = "" if event.since_unix_s is None else f" for {age(event.unix_s - event.since_unix_s)}"
    change = "" if event.change is None else f", {change_text(event.change)}{lasted}"
    return (
        f"slow: {rates(event)}{change};"
        f" likely: {event.likely or _UNKNOWN}; do: {command_for(event.cause, event.profile)}"
    )


def phone_lines(
    event: MeasurementEvent, *, box: str, now_unix_s: float, clock: Callable[[float], str]
) -> tuple[str, ...]:
    """Return the message about an event, a title first.

    Args:
        event: The event.
        box: Name of this machine.
        now_unix_s: Time at which the message is sent.
        clock: Function that returns the local time of a moment as people read it: ``04:10``.
    """
    since_s = event.unix_s if event.since_unix_s is None else event.since_unix_s
    title = _TITLES[event.kind].format(name=event.profile)
    figures = rates(event)
    told = [box, f"since {clock(since_s)} ({age(now_unix_s - since_s)})"]
    if event.change is not None:
        told.append(change_text(event.change))
    lines = [f"{title}: {figures}" if figures else title, " · ".join(told)]
    if event.kind not in _LOSSES:
        return (*lines, event.text) if event.text else tuple(lines)
    likely, command = event.likely or _UNKNOWN, command_for(event.cause, event.profile)
    return (*lines, f"Likely: {likely}", f"Do: {command}")
