"""An ordinary life in short: every incident is told once, nothing else is, and the judge finds faults."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.model.alerts import AlertRule, Subject, SubjectKind, TransitionKind
from tests.bench.life_box import LifeBox, Told
from tests.bench.life_incidents import INCIDENT_RULES
from tests.bench.life_month import Month, month
from tests.bench.life_silence import live_with_boots_and_cuts
from tests.bench.life_verdict import judge


@pytest.fixture(scope="module")
def lived() -> tuple[Month, LifeBox]:
    """Three days of which the first night has no internet."""
    planned = month(4, 3)
    box = LifeBox(month=planned)
    box.live()
    return planned, box


def test_every_incident_is_told_once_and_nothing_else_is(lived: tuple[Month, LifeBox]) -> None:
    """Three days through the real rules, alert book and outbox."""
    planned, box = lived
    verdict = judge(planned.effects, box.told)
    assert verdict.incidents >= 8
    assert verdict.told == verdict.incidents
    assert (verdict.missed, verdict.doubled, verdict.false, verdict.unresolved) == ([], [], [], [])
    assert box.rows == []


def test_a_month_has_every_rule() -> None:
    """Each rule has an incident; the test alert of operators is none."""
    planned = {effect.planted.rule for effect in month(1).effects if effect.planted is not None}
    assert planned == set(INCIDENT_RULES) == set(AlertRule) - {AlertRule.TEST}


def test_the_judge_finds_what_is_wrong(lived: tuple[Month, LifeBox]) -> None:
    """A message too few, one too many and one about nothing are each counted."""
    planned, box = lived
    first = next(one for one in box.told if one.kind is TransitionKind.FIRED)
    without = [one for one in box.told if one.alert != first.alert]
    assert len(judge(planned.effects, without).missed) == 1
    twice = [*box.told, replace(first, alert="A999")]
    assert len(judge(planned.effects, twice).doubled) == 1
    nobody = Subject(kind=SubjectKind.PROFILE, name="nobody")
    strange: list[Told] = [*box.told, replace(first, alert="A999", subject=nobody)]
    assert len(judge(planned.effects, strange).false) == 1


def test_boots_are_no_silence_and_power_cuts_are(tmp_path: Path) -> None:
    """Boots of up to five minutes tell nobody, and power cuts are told within six minutes."""
    silences = live_with_boots_and_cuts(3, tmp_path, days=3)
    assert (silences.false, silences.missed) == (0, 0)
    assert 0 < silences.slowest_s <= 360
