"""Terms of the alert rules: complete, and as long in looks and time as the documentation says."""

import pytest

from appliance.alerts.book.alert_book import AlertPolicy
from appliance.alerts.book.alert_rules import ALERT_TERMS
from appliance.model.alerts import BOX, AlertRule, Severity, Subject, SubjectKind
from appliance.model.words import Mark
from tests.fakes.alert_rounds import GENESIS, AlertRounds, bad, good

CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING
ON_THE_BOX = {
    AlertRule.FOREIGN_HOLDER,
    AlertRule.UNATTRIBUTED,
    AlertRule.DRIVER,
    AlertRule.DISK,
    AlertRule.SUPERVISOR_DOWN,
    AlertRule.GATEWAY_DOWN,
}
ON_A_GPU = {
    AlertRule.GPU_LOST,
    AlertRule.GPU_ERROR,
    AlertRule.GPU_RECOVERY,
    AlertRule.ECC,
    AlertRule.THROTTLE,
    AlertRule.PCIE,
}
TERMS = [
    # rule, severity, seconds from the first bad look to the fire, from the first good one to the end
    (AlertRule.LIVE_DOWN, CRITICAL, 20, 10),
    (AlertRule.NO_PROGRESS, CRITICAL, 10, 10),
    (AlertRule.CRASH_LOOP, CRITICAL, 0, 900),
    (AlertRule.CPU_FALLBACK, WARNING, 10, 10),
    (AlertRule.SLOW, WARNING, 0, 0),
    (AlertRule.QUALITY, WARNING, 0, 0),
    (AlertRule.NO_PROBE, WARNING, 0, 0),
    (AlertRule.PATCH, WARNING, 10, 10),
    (AlertRule.DRIFT, WARNING, 10, 10),
    (AlertRule.SWITCH_FAILED, CRITICAL, 0, 0),
    (AlertRule.SWITCH_STUCK, CRITICAL, 0, 0),
    (AlertRule.EXPOSED, CRITICAL, 0, 10),
    (AlertRule.FILTER_OFF, WARNING, 10, 10),
    (AlertRule.FOREIGN_HOLDER, WARNING, 60, 60),
    (AlertRule.UNATTRIBUTED, WARNING, 600, 600),
    (AlertRule.GPU_LOST, CRITICAL, 0, 20),
    (AlertRule.GPU_ERROR, CRITICAL, 0, 20),
    (AlertRule.GPU_RECOVERY, CRITICAL, 0, 20),
    (AlertRule.ECC, WARNING, 0, 20),
    (AlertRule.THROTTLE, WARNING, 600, 600),
    (AlertRule.PCIE, WARNING, 600, 600),
    (AlertRule.DRIVER, CRITICAL, 10, 10),
    (AlertRule.DISK, WARNING, 600, 600),
    (AlertRule.SUPERVISOR_DOWN, CRITICAL, 20, 10),
    (AlertRule.GATEWAY_DOWN, CRITICAL, 20, 10),
    (AlertRule.WATCH_DOWN, CRITICAL, 20, 10),
    (AlertRule.TEST, WARNING, 0, 0),
]


def subject_of(rule: AlertRule) -> Subject:
    if rule in ON_THE_BOX:
        return BOX
    if rule in ON_A_GPU:
        return Subject(kind=SubjectKind.GPU, name="GPU-1")
    return GENESIS


def test_every_rule_has_terms() -> None:
    """The table holds the rules of the domain in their order, and so does the one of this test."""
    assert list(ALERT_TERMS) == list(AlertRule) == [rule for rule, *_ in TERMS]


@pytest.mark.parametrize(("rule", "severity", "fires_s", "resolves_s"), TERMS)
def test_a_rule_fires_and_resolves_in_its_time(
    rule: AlertRule, severity: Severity, fires_s: int, resolves_s: int
) -> None:
    """A condition that begins is told after the rule's time, one that ends after another."""
    rounds = AlertRounds(policy=AlertPolicy(time_zone="UTC"))
    subject = subject_of(rule)
    rounds.look_for(100, good(rule, subject))
    rounds.look(bad(rule, subject))
    begun_unix_s = rounds.now.unix_s
    rounds.look_for(1200, bad(rule, subject))
    rounds.look(good(rule, subject))
    ended_unix_s = rounds.now.unix_s
    rounds.look_for(1200, good(rule, subject))
    fired, resolved = (each for each in rounds.transitions if each.kind in {"fired", "resolved"})
    assert fired.unix_s - begun_unix_s == fires_s
    assert resolved.unix_s - ended_unix_s == resolves_s
    assert fired.severity is severity
    assert fired.delivered
    assert resolved.delivered


def test_few_rules_are_told_of_a_standby_model() -> None:
    """A port that others reach, a filter that is off and a stuck switch matter whoever uses the model."""
    assert {rule for rule, terms in ALERT_TERMS.items() if terms.least_mark is Mark.STANDBY} == {
        AlertRule.SWITCH_STUCK,
        AlertRule.EXPOSED,
        AlertRule.FILTER_OFF,
    }
