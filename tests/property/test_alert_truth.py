"""Truth table of the alerts: who is told of what, in every situation and with any table changed."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import settings

from appliance.alerts.book import DeliveryGate
from appliance.alerts.inhibition import INHIBITIONS, InhibitionScope
from appliance.alerts.round import HOLDS, STANDARD_TABLES, AlertTables
from appliance.alerts.rule import Rule
from appliance.alerts.rules import RULES
from appliance.model.alerts import AlertRule, Severity, TransitionKind
from appliance.model.words import Mark
from tests.property.alert_causes import inhibition_violations
from tests.property.alert_checks import (
    flapping_violations,
    later_violations,
    reminder_violations,
    terms_violations,
    time_violations,
)
from tests.property.alert_truth import Observed, situations, table_violations

SITUATIONS: Final = list(situations())
PARTS: Final = 8
DOWN: Final = [
    one for one in SITUATIONS if one.desired and one.observed is Observed.DOWN and one.flags <= 2
]
"""Situations with few flags, in which each gate shows."""
OF_ONE: Final = frozenset({InhibitionScope.SAME_SUBJECT, InhibitionScope.GPU_OF_PROFILE})


def with_terms(rule: AlertRule, terms: Rule) -> AlertTables:
    return replace(STANDARD_TABLES, rules={**RULES, rule: terms})


def with_hold(gate: DeliveryGate, kinds: frozenset[TransitionKind]) -> AlertTables:
    return replace(STANDARD_TABLES, holds={**HOLDS, gate: kinds})


def gates_changed() -> Iterator[tuple[str, AlertTables]]:
    """Yield tables in which a gate no longer holds one kind of message."""
    for gate, kinds in HOLDS.items():
        for kind in sorted(kinds):
            yield f"{gate} holds no {kind}", with_hold(gate, kinds - {kind})


def inhibitions_changed() -> Iterator[tuple[str, AlertTables]]:
    """Yield tables without an inhibition, without one of its symptoms, or with one for everything."""
    for number, one in enumerate(INHIBITIONS):
        others = [other for other in INHIBITIONS if other is not one]
        name = f"{number} {one.cause}"
        yield f"no inhibition {name}", replace(STANDARD_TABLES, inhibitions=tuple(others))
        symptoms = sorted(one.symptoms - {AlertRule.GATEWAY_DOWN})
        fewer = [
            (symptom, one.symptoms - {symptom}) for symptom in sorted({symptoms[0], symptoms[-1]})
        ]
        changed = [(f"without {name}", replace(one, symptoms=kept)) for name, kept in fewer]
        if one.scope in OF_ONE and isinstance(one.cause, AlertRule):
            everything = replace(one, scope=InhibitionScope.EVERYTHING)
            changed.append(("of everything", everything))
        for what, new in changed:
            tables = replace(STANDARD_TABLES, inhibitions=(*others, new))
            yield f"inhibition {name} {what}", tables


def terms_changed() -> Iterator[tuple[str, AlertTables]]:
    """Yield tables in which one rule has other terms."""
    for rule, terms in RULES.items():
        is_critical = terms.severity is Severity.CRITICAL
        is_live = terms.least_mark is Mark.LIVE
        changes: dict[str, dict[str, object]] = {
            "severity": {"severity": Severity.WARNING if is_critical else Severity.CRITICAL},
            "mark": {"least_mark": Mark.STANDBY if is_live else Mark.LIVE},
            "longer bad": {"bad_s": terms.bad_s + 20},
            "longer good": {"good_s": terms.good_s + 30},
        }
        if terms.bad_s:
            changes["shorter bad"] = {"bad_s": terms.bad_s - 20}
        if terms.good_s:
            changes["shorter good"] = {"good_s": terms.good_s - 20}
        else:
            changes["more good looks"] = {"good_looks": terms.good_looks + 1}
        if terms.bad_looks > 1:
            changes["fewer bad looks"] = {"bad_looks": terms.bad_looks - 1}
            changes["of more looks"] = {"of_looks": terms.of_looks + 1}
        for what, change in changes.items():
            yield f"{rule}: {what}", with_terms(rule, replace(terms, **change))  # type: ignore[arg-type]


def times_changed() -> Iterator[tuple[str, AlertTables]]:
    """Yield tables with another time or number."""
    first, *later = STANDARD_TABLES.reminders_s
    changes: dict[str, dict[str, object]] = {
        "reminders later": {"reminders_s": (first * 2, *later)},
        "fewer reminders": {"reminders_s": tuple(later)},
        "reminders more seldom": {"reminders_s": (first, later[0], 50_000.0)},
        "flapping of more changes": {"flapping_changes": 5},
        "flapping of fewer changes": {"flapping_changes": 3},
        "flapping ends sooner": {"flapping_s": 1500.0},
        "flapping ends later": {"flapping_s": 2400.0},
        "no grouping": {"grouping_s": 0.0},
        "no wait for the digest": {"digest_waits_s": 0.0},
        "no grace": {"grace_s": 0.0},
        "a longer grace": {"grace_s": 120.0},
    }
    for what, change in changes.items():
        yield what, replace(STANDARD_TABLES, **change)  # type: ignore[arg-type]


def lingers_changed() -> Iterator[tuple[str, AlertTables]]:
    """Yield tables in which an alert that outlives its cause is told sooner or later."""
    for linger_s in (0.0, 60.0):
        yield f"linger of {linger_s} s", replace(STANDARD_TABLES, linger_s=linger_s)


def table_of_few(tables: AlertTables) -> Iterator[str]:
    """Yield what is wrong in situations with few flags."""
    return table_violations(tables, DOWN)


def changed_terms(tables: AlertTables) -> Iterator[str]:
    """Yield what is wrong with the rules whose terms are not the standard ones."""
    rules = [rule for rule in AlertRule if tables.rules[rule] != RULES[rule]]
    return terms_violations(tables, rules)


MUTATIONS: Final = {
    name: (tables, checks)
    for changed, checks in (
        (gates_changed, (flapping_violations, later_violations, table_of_few)),
        (inhibitions_changed, (inhibition_violations,)),
        (terms_changed, (changed_terms,)),
        (times_changed, (time_violations, flapping_violations, reminder_violations)),
        (lingers_changed, (inhibition_violations,)),
    )
    for name, tables in changed()
}
"""Tables with one entry changed, and the checks of which one finds it."""


@pytest.mark.parametrize("part", range(PARTS))
def test_targets_are_told_the_truth(part: int) -> None:
    """In 9216 situations of mark, wish, observation, severity and flags the table is kept.

    `make properties` looks at all of them, `make test` at half, `make check` at a quarter.
    """
    step = PARTS * max(1, 100 // settings().max_examples)
    assert list(table_violations(STANDARD_TABLES, SITUATIONS[part::step])) == []


@pytest.mark.parametrize(
    "check",
    [
        terms_violations,
        time_violations,
        flapping_violations,
        later_violations,
        reminder_violations,
        inhibition_violations,
    ],
)
def test_terms_times_and_causes_are_kept(check: Callable[[AlertTables], Iterator[str]]) -> None:
    """Every rule has its times, every cause its symptoms, and what was told is not told again."""
    assert list(check(STANDARD_TABLES)) == []


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mutation_is_found(mutation: str) -> None:
    """With any one entry of the tables changed, a sentence of the documentation does not hold."""
    tables, checks = MUTATIONS[mutation]
    assert any(found for check in checks for found in check(tables))
