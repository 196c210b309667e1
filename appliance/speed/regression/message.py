"""Sentences about a speed, for lists and logs.

They have no clock times, since they may be read in any time zone, days later; the message to a phone is
made when it is sent (`alerts.messages.alert_message`), from what `alerts.watchdog_rules.speed_rules` finds.
"""

from typing import Final

from appliance.model.amounts import age
from appliance.model.measurements import MeasurementEvent
from appliance.model.words import Series
from appliance.speed.regression.causes import command_for
from appliance.status.speed_row import change_text, rate_text

_UNKNOWN: Final = "unknown"
_UNITS: Final = {Series.DECODE: "tok/s", Series.PREFILL: "tok/s of prompts"}


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
