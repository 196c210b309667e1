"""Growth of an evaluation of the alert book with its findings."""

from collections.abc import Callable

import pytest

from appliance.model.alerts import Finding, Sign, Subject, SubjectKind
from tests.fakes.alert_rounds import AlertRounds, finding
from tests.growth.cost import Call, excess_steps, seconds

_SUBJECTS = 2000
_MOST_S = 0.05
_TRIES = 10


def findings(size: int, sign: Sign) -> list[Finding]:
    return [
        finding(sign, subject=Subject(kind=SubjectKind.PROFILE, name=f"p{number}"))
        for number in range(size)
    ]


def all_well(size: int) -> Call:
    """Return a look at a box on which all is well."""
    rounds, found = AlertRounds(), findings(size, Sign.GOOD)
    return lambda: rounds.look(*found)


def all_down(size: int) -> Call:
    """Return the look at which everything fires."""
    rounds, found = AlertRounds(), findings(size, Sign.BAD)
    rounds.look(*found, times=2)
    return lambda: rounds.look(*found)


def all_on_fire(size: int) -> Call:
    """Return a look at a box on which everything has fired."""
    rounds, found = AlertRounds(), findings(size, Sign.BAD)
    rounds.look(*found, times=4)
    return lambda: rounds.look(*found)


@pytest.mark.parametrize("make", [all_well, all_down, all_on_fire])
def test_an_evaluation_is_linear(make: Callable[[int], Call]) -> None:
    """Twice the subjects take twice the steps."""
    assert excess_steps(make, 100) is None


@pytest.mark.parametrize("make", [all_well, all_on_fire])
def test_two_thousand_subjects_are_evaluated_in_50_ms(make: Callable[[int], Call]) -> None:
    """A look at 2000 subjects takes less than 50 ms of the processor."""
    call = make(_SUBJECTS)
    assert min(seconds(call) for _ in range(_TRIES)) < _MOST_S
