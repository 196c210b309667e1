"""Messages about a speed: the sentence, and the lines for a phone."""

from dataclasses import replace

import pytest

from appliance.domain.measurements import EventKind, MeasurementEvent, Series
from appliance.planning.regression.message import loss_sentence, phone_lines, rates

NOW = 1_800_000_000.0
LOSS = MeasurementEvent(
    unix_s=NOW,
    profile="genesis",
    kind=EventKind.REGRESSION,
    series=Series.DECODE,
    change=-0.34,
    cause="foreign-holder",
    rate=27.06,
    baseline=41.0,
    since_unix_s=NOW - 35 * 60,
    likely="9.8 GiB of GPU memory held by python3 (pid 4121)",
)


def clock(unix_s: float) -> str:
    return {NOW - 35 * 60: "04:10", NOW: "04:45"}[unix_s]


def test_sentence_says_what_how_long_why_and_what_to_type() -> None:
    """The sentence of a loss has no clock time in it."""
    assert loss_sentence(LOSS) == (
        "slow: 27.1 tok/s (was 41.0), −34 % for 35 min; likely: 9.8 GiB of GPU memory held by"  # noqa: RUF001
        " python3 (pid 4121); do: appliance status"
    )


def test_unknown_cause_is_said() -> None:
    """A loss without a cause says so, and names a command all the same."""
    unknown = replace(LOSS, cause=None, likely="", since_unix_s=None)
    assert loss_sentence(unknown) == (
        "slow: 27.1 tok/s (was 41.0), −34 %; likely: unknown; do: appliance history genesis"  # noqa: RUF001
    )


def test_phone_has_four_lines() -> None:
    """A phone shows what, since when and how much, the likely cause, and what to type."""
    lines = phone_lines(LOSS, box="garage", now_unix_s=NOW, clock=clock)
    assert lines == (
        "▼ genesis slow: 27.1 tok/s (was 41.0)",
        "garage · since 04:10 (35 min) · −34 %",  # noqa: RUF001
        "Likely: 9.8 GiB of GPU memory held by python3 (pid 4121)",
        "Do: appliance status",
    )


@pytest.mark.parametrize("kind", EventKind)
def test_every_event_has_a_title(kind: EventKind) -> None:
    """The first line of every event is not empty, and its text comes last."""
    event = MeasurementEvent(unix_s=NOW, profile="genesis", kind=kind, text="because of this")
    first, *others = phone_lines(event, box="garage", now_unix_s=NOW + 5, clock=clock)
    assert first
    assert others[0] == "garage · since 04:45 (5 s)"
    if kind is not EventKind.REGRESSION:
        assert others[1:] == ["because of this"]
        short = phone_lines(replace(event, text=""), box="garage", now_unix_s=NOW, clock=clock)
        assert len(short) == 2


def test_figures_say_what_is_known() -> None:
    """Figures without a series are empty, and those without a baseline have the rate alone."""
    assert rates(replace(LOSS, series=None)) == ""
    assert rates(replace(LOSS, baseline=None, series=Series.PREFILL)) == "27.1 tok/s of prompts"
