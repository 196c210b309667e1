"""Lines about the measured speed of a profile."""

import io
from collections.abc import Mapping

import msgspec
import pytest

from appliance.cli.status_screens import speed_lines
from appliance.cli.terminal import Terminal
from appliance.model.speeds import SeriesSpeed, SpeedReport
from appliance.model.words import ProbeOutcome, Series
from appliance.status.speed_figures import speed_of
from tests.fakes.cli_box import CliBox
from tests.fakes.health_server import HEALTHY, PREFILL, report

NOW = 1_800_000_000.0
LOST = HEALTHY.replaced(
    phase="regressed",
    rate=27.1,
    change=-0.34,
    since_unix_s=NOW - 35 * 60,
    cause="thermal",
    cause_text="GPU 0 throttles at 88 °C",
    rates=(41.0, 41.2, 27.1, 27.0),
)


@pytest.fixture(autouse=True)
def in_utc(here: CliBox) -> CliBox:
    """Return a box in whose time zone this process is."""
    return here


def lines(shown: SpeedReport) -> list[str]:
    return list(speed_lines(speed_of(msgspec.to_builtins(shown)), Terminal(io.StringIO()), now=NOW))


def test_one_line_has_the_figures() -> None:
    """Rate, baseline with its band, the last rates, TTFT, and the age of the last probe."""
    assert lines(report("genesis", NOW)) == [
        "speed   41.2 tok/s  baseline 41.0 ±1.2  ▇▇▇▇  TTFT 0.41 s  (probe 3 min ago)"
    ]


def test_a_loss_is_told_with_its_cause() -> None:
    """A second line says how much, since when, and why."""
    figures, loss = lines(report("genesis", NOW, LOST))
    assert figures.startswith("speed   27.1 tok/s  baseline 41.0 ±1.2  ▇▇▃▃  TTFT")
    assert loss == "▼ decode −34 % since Fri 07:25 (35 min): GPU 0 throttles at 88 °C"  # noqa: RUF001


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"phase": "recovering", "since_unix_s": None, "cause_text": "", "cause": None},
            "▼ decode −34 %, recovering: cause unknown",  # noqa: RUF001
        ),
        ({"since_unix_s": None, "cause_text": ""}, "▼ decode −34 %: thermal"),  # noqa: RUF001
        ({"change": None, "since_unix_s": None}, "▼ decode slower: GPU 0 throttles at 88 °C"),
        (
            {"phase": "dwelling"},
            "decode −34 % in the last probes: watched until it is certain",  # noqa: RUF001
        ),
        ({"phase": "dwelling", "change": None}, None),
        ({"phase": "healthy"}, None),
    ],
)
def test_states_of_the_detector(changes: Mapping[str, object], line: str | None) -> None:
    """A loss that is doubted or recovers is told as such, an unknown cause as unknown."""
    shown = lines(report("genesis", NOW, LOST.replaced(**changes)))
    assert shown[1:] == ([] if line is None else [line])


def test_prefill_is_told_when_it_is_lost() -> None:
    """A sound one is left to `appliance history`."""
    slow = LOST.replaced(series=Series.PREFILL, since_unix_s=None)
    assert lines(report("genesis", NOW, series=(HEALTHY, slow)))[1].startswith("▼ prefill −34 %:")  # noqa: RUF001


NEVER: SeriesSpeed = HEALTHY.replaced(rate=None)
UNPROBED = {"last_probe_unix_s": None, "last_outcome": None, "last_valid_unix_s": None}
WARMS_UP = "warming up: valid probes do not count yet (the last 3 min ago)"
"""Text beside probes that were valid and are discarded, or come before a detector counts any."""


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"series": (), **UNPROBED}, "not measured yet: next probe in 12 min"),
        ({"series": (NEVER,), **UNPROBED, "waiting": "busy"}, "not measured yet: busy"),
        ({"series": (), **UNPROBED, "next_probe_unix_s": None}, "not measured yet"),
        ({"series": (NEVER,)}, f"{WARMS_UP}: next probe in 12 min"),
        ({"series": (NEVER,), "last_valid_unix_s": None}, f"{WARMS_UP}: next probe in 12 min"),
        (
            {"series": (NEVER, PREFILL)},
            "prefill 1850 tok/s, decode not measured yet: next probe in 12 min",
        ),
        (
            {
                "series": (NEVER,),
                "last_valid_unix_s": None,
                "last_outcome": ProbeOutcome.ENDED_EARLY,
            },
            "no valid probe yet (the last 3 min ago: ended early): next probe in 12 min",
        ),
        (
            {"series": (HEALTHY.replaced(baseline=None, band=None, rates=()),), "ttft_s": None},
            "41.2 tok/s  no baseline yet  (probe 3 min ago)",
        ),
        (
            {"last_valid_unix_s": NOW - 7300, "last_outcome": ProbeOutcome.ENDED_EARLY},
            (
                "41.2 tok/s  baseline 41.0 ±1.2  ▇▇▇▇  TTFT 0.41 s"
                "  (valid probe 2 h ago, the last 3 min ago: ended early)"
            ),
        ),
        (
            {"last_valid_unix_s": None, "ttft_s": None},
            "41.2 tok/s  baseline 41.0 ±1.2  ▇▇▇▇",
        ),
    ],
)
def test_what_is_not_known_is_left_out(changes: Mapping[str, object], line: str) -> None:
    """A profile without a probe, without a baseline, or whose last probe was not valid."""
    shown = report("genesis", NOW).replaced(**changes)
    assert lines(shown)[0] == f"speed   {line}"


def test_quality_and_trouble_have_lines() -> None:
    """Trouble of a profile is told; canaries that pass are not."""
    told = report("genesis", NOW, quality_pass_rate=0.62, trouble="the engine tells no times")
    assert lines(told)[1:] == [
        "quality 62 % of the canaries passed lately",
        "the engine tells no times",
    ]
    assert len(lines(report("genesis", NOW, quality_pass_rate=1.0))) == 1
