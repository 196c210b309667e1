"""Speed reports: their JSON, and the speed of a series."""

import json

import msgspec

from appliance.model.speeds import SeriesSpeed, SpeedReport
from appliance.model.words import ProbeOutcome, Series
from appliance.wire.typed_json import from_json

REPORT = SpeedReport(
    profile="genesis",
    series=(
        SeriesSpeed(
            series=Series.DECODE,
            phase="regressed",
            rate=27.1,
            baseline=41.0,
            band=1.2,
            change=-0.34,
            rates=(41.2, 27.1),
        ),
    ),
    last_probe_unix_s=1_800_000_000.0,
    last_outcome=ProbeOutcome.VALID,
)


def test_report_is_the_same_after_json() -> None:
    """A report keeps all its values as JSON, in which tuples are lists."""
    document = json.loads(json.dumps(msgspec.to_builtins(REPORT)))
    assert from_json(SpeedReport, document) == REPORT


def test_series_that_is_not_measured_has_no_speed() -> None:
    """Of a report the speed of a series is found by its name."""
    decode = REPORT.of(Series.DECODE)
    assert decode is not None
    assert decode.rate == 27.1
    assert REPORT.of(Series.PREFILL) is None
