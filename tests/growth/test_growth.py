"""Growth of every parser: doubling its input at most doubles its steps."""

import pytest

from tests.growth.cost import excess_seconds, excess_steps
from tests.growth.subjects import SUBJECTS, Subject

_SMALL = 256


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
def test_twice_the_input_takes_twice_the_steps(subject: Subject) -> None:
    """Python code of a parser executes no more bytecodes than its input explains."""
    found = {name: excess_steps(make, _SMALL) for name, make in subject.cases()}
    assert {name: excess for name, excess in found.items() if excess is not None} == {}


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
def test_twice_the_input_takes_twice_the_time(subject: Subject) -> None:
    """Work of C code for a parser grows no faster than the input, up to the largest input."""
    found = {name: excess_seconds(make, subject.most) for name, make in subject.cases()}
    assert {name: excess for name, excess in found.items() if excess is not None} == {}
