"""Report of a profile's speed from the health agent's JSON, and its figures in text."""

import json
from math import inf

import msgspec
import pytest

from appliance.model.speeds import SeriesSpeed, SpeedReport
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.detector_state import DetectorPhase
from appliance.status.speed_figures import (
    DECODE,
    PREFILL,
    band_text,
    change_text,
    rate_text,
    sparkline,
    speed_of,
)

REPORT = SpeedReport(
    profile="genesis",
    series=(
        SeriesSpeed(
            series=Series.DECODE,
            phase=DetectorPhase.REGRESSED,
            rate=10.0,
            baseline=20.0,
            band=0.5,
            change=-0.5,
            since_unix_s=7.0,
            cause="throttle",
            cause_text="thermal throttling",
            rates=(20.0, 10.0),
            tokens_per_step=2.0,
        ),
        SeriesSpeed(series=Series.PREFILL, phase=DetectorPhase.UNSET, cause="throttle"),
    ),
    last_probe_unix_s=9.0,
    last_outcome=ProbeOutcome.YIELDED,
    last_valid_unix_s=8.0,
    next_probe_unix_s=10.0,
    waiting="requests run",
    ttft_s=0.4,
    quality_pass_rate=0.9,
    trouble="disk full",
)


def test_rates_of_a_report_are_in_tokens() -> None:
    """Rates of decoding are tokens a second: steps a second times tokens a step."""
    assert speed_of(json.loads(json.dumps(msgspec.to_builtins(REPORT)))) == SpeedReport(
        profile="genesis",
        series=(
            SeriesSpeed(
                series=DECODE,
                phase="regressed",
                rate=20.0,
                baseline=40.0,
                band=1.0,
                change=-0.5,
                since_unix_s=7.0,
                cause="throttle",
                cause_text="thermal throttling",
                rates=(40.0, 20.0),
            ),
            SeriesSpeed(series=PREFILL, phase="unset", cause="throttle"),
        ),
        last_probe_unix_s=9.0,
        last_outcome=ProbeOutcome.YIELDED,
        last_valid_unix_s=8.0,
        next_probe_unix_s=10.0,
        waiting="requests run",
        ttft_s=0.4,
        quality_pass_rate=0.9,
        trouble="disk full",
    )


def test_a_report_of_another_release_is_read_as_far_as_it_is_known() -> None:
    """Missing fields are empty; a value of another type is named where the speed would be."""
    assert speed_of({}) == SpeedReport(profile="")
    assert speed_of({"profile": "a", "later": 1}) == SpeedReport(profile="a")
    odd = speed_of({"profile": "a", "ttft_s": "soon"})
    assert odd.trouble.startswith("the report of its speed cannot be read: ttft_s: ")
    assert odd.of(DECODE) is None


@pytest.mark.parametrize("phase", DetectorPhase)
def test_each_phase_is_sound_or_in_doubt_or_lost(phase: DetectorPhase) -> None:
    """The words are those of the detector."""
    row = SeriesSpeed(series=DECODE, phase=phase.value)
    assert row.is_lost == (phase in {DetectorPhase.REGRESSED, DetectorPhase.RECOVERING})
    assert row.is_in_doubt == (phase in {DetectorPhase.CONFIRMING, DetectorPhase.DWELLING})


@pytest.mark.parametrize(
    ("rates", "reference", "expected"),
    [
        ((41.0, 40.6, 27.1, None), 41.0, "▇▇▃·"),
        ((41.0, 27.1), None, "▇▃"),
        ((0.0, 20.0, 44.0, 99.0, inf), 41.0, "▁▁█████"[:3] + "██"),
        ((0.0, None), None, "▁·"),
        ((), 41.0, ""),
    ],
)
def test_a_sparkline_shows_losses_and_hides_noise(
    rates: tuple[float | None, ...], reference: float | None, expected: str
) -> None:
    """Half of the reference and less is the lowest bar; one per cent is no bar."""
    assert sparkline(rates, reference) == expected


@pytest.mark.parametrize(
    ("rate", "text"), [(0.846, "0.85"), (27.07, "27.1"), (99.94, "99.9"), (1850.4, "1850")]
)
def test_rates_have_three_figures(rate: float, text: str) -> None:
    """Small rates have decimals, large ones none."""
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [(-0.34, "−34 %"), (-0.054, "−5.4 %"), (0.0999, "+10 %"), (0.0, "+0.0 %")],  # noqa: RUF001
)
def test_changes_are_in_per_cent(change: float, text: str) -> None:
    """A change below ten per cent has a decimal."""
    assert change_text(change) == text


def test_a_band_has_the_decimals_of_its_baseline() -> None:
    """A baseline whose band is not known stands alone."""
    assert band_text(41.04, 1.23) == "41.0 ±1.2"
    assert band_text(1850.0, 40.6) == "1850 ±41"
    assert band_text(0.85, None) == "0.85"
