"""Sentences about a speed."""

from dataclasses import replace

from appliance.model.measurements import EventKind, MeasurementEvent
from appliance.model.words import Series
from appliance.speed.regression.message import loss_sentence, rates

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


def test_figures_say_what_is_known() -> None:
    """Figures without a series are empty, and those without a baseline have the rate alone."""
    assert rates(replace(LOSS, series=None)) == ""
    assert rates(replace(LOSS, baseline=None, series=Series.PREFILL)) == "27.1 tok/s of prompts"
