"""Rules about what the prober measures."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.model.alerts import AlertRule, Finding, Sign
from appliance.model.observed import ActiveState
from appliance.model.words import Series
from appliance.speed.speeds import SeriesSpeed, SpeedReport
from tests.fakes.looks import NOW, box_look, looked, of_rule, profile_look, speed_look, unit_look

GOOD, BAD, UNKNOWN = Sign.GOOD, Sign.BAD, Sign.UNKNOWN
LOST = SeriesSpeed(
    series=Series.DECODE,
    phase="regressed",
    rate=20.3,
    baseline=30.75,
    change=-0.34,
    since_unix_s=NOW - 2100,
    cause="foreign-holder",
    cause_text="9.8 GiB of GPU memory held by python3 (pid 4121)",
    tokens_per_step=4 / 3,
)
LOST_PREFILL = SeriesSpeed(
    series=Series.PREFILL, phase="recovering", rate=900.0, baseline=1850.0, change=-0.51
)


def found(rule: AlertRule, **changes: Any) -> Finding:
    look = box_look(profile_look(**changes))
    return of_rule(looked([look]), rule)["profile:genesis"]


@pytest.mark.parametrize(
    ("report", "sign"),
    [
        (speed_look(), GOOD),
        (None, UNKNOWN),
        (speed_look(series=()), UNKNOWN),
        *(
            (speed_look(series=(replace(LOST, phase=phase),)), sign)
            for phase, sign in {
                "unset": UNKNOWN,
                "learning": GOOD,
                "healthy": GOOD,
                "confirming": GOOD,
                "dwelling": GOOD,
                "regressed": BAD,
                "recovering": BAD,
            }.items()
        ),
        (speed_look(series=(LOST_PREFILL, replace(LOST, phase="healthy"))), BAD),
    ],
)
def test_loss_that_the_detector_reports_is_slow(report: SpeedReport | None, sign: Sign) -> None:
    """A loss lasts from its report to its end; one in doubt is none."""
    assert found(AlertRule.SLOW, speed=report).sign is sign


def test_words_of_a_loss() -> None:
    """The fact has the rates in tokens, the details the size, then cause and its command."""
    one = found(AlertRule.SLOW, speed=speed_look(series=(LOST, LOST_PREFILL)))
    assert one.fact == "slow: 27.1 tok/s (was 41.0)"
    assert one.details == ("−34 %", "900 tok/s of prompts (was 1850)")  # noqa: RUF001
    assert one.likely == "9.8 GiB of GPU memory held by python3 (pid 4121)"
    assert (one.command, one.since_unix_s) == ("appliance status", NOW - 2100)


def test_loss_without_figures_is_told_all_the_same() -> None:
    """A report that an agent has just restored may have no rate and no time."""
    bare = SeriesSpeed(series=Series.DECODE, phase="regressed")
    one = found(AlertRule.SLOW, speed=speed_look(series=(bare,)))
    assert (one.sign, one.fact, one.details, one.likely) == (BAD, "slow", (), "unknown")
    assert one.command == "appliance history genesis"


@pytest.mark.parametrize(
    ("changes", "sign", "details"),
    [
        ({}, GOOD, ()),
        ({"speed": None}, UNKNOWN, ()),
        ({"speed": speed_look(quality_pass_rate=None)}, UNKNOWN, ()),
        (
            {"quality_lost": True, "speed": speed_look(quality_pass_rate=0.62)},
            BAD,
            ("62% of the last canaries passed",),
        ),
        ({"quality_lost": True, "speed": None}, BAD, ()),
    ],
)
def test_loss_of_quality_is_told(
    changes: dict[str, Any], sign: Sign, details: tuple[str, ...]
) -> None:
    """A loss that is reported is found, with the share that passed where it is known."""
    one = found(AlertRule.QUALITY, **changes)
    assert (one.sign, one.details) == (sign, details)


LOADING = unit_look("appliance-backend-genesis.service", active=ActiveState.ACTIVATING)


@pytest.mark.parametrize(
    ("changes", "sign"),
    [
        ({}, GOOD),
        ({"speed": None}, UNKNOWN),
        ({"speed": speed_look(last_valid_unix_s=None)}, UNKNOWN),
        ({"unit": LOADING}, UNKNOWN),
        ({"speed": speed_look(silence="no valid probe in 6 h of serving (9 busy)")}, BAD),
    ],
)
def test_long_silence_of_the_probes_is_told(changes: dict[str, Any], sign: Sign) -> None:
    """The schedule says when a time without a valid probe has become too long."""
    assert found(AlertRule.NO_PROBE, **changes).sign is sign
