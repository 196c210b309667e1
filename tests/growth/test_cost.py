"""Growth of time: what counts as growth, on calls that take known times."""

from collections.abc import Callable
from time import process_time

from tests.growth.cost import Call, excess_seconds

_MOST = 1 << 16


def taking(cost_s: Callable[[int], float]) -> Callable[[int], Call]:
    """Return a maker of calls that use the processor for a time by their size."""

    def make(size: int) -> Call:
        def call() -> None:
            until_s = process_time() + cost_s(size)
            while process_time() < until_s:
                pass

        return call

    return make


def test_growth_by_the_square_is_found() -> None:
    """A call that takes four times as long for twice the input is reported."""
    assert excess_seconds(taking(lambda size: 0.003 * (size / 8192) ** 2), _MOST) is not None


def test_growth_by_the_square_at_the_largest_input_is_found() -> None:
    """A call that only the largest input makes slow is reported by smaller ones too."""
    assert excess_seconds(taking(lambda size: 0.03 * (size / _MOST) ** 2), _MOST) is not None


def test_another_path_for_long_input_is_no_growth() -> None:
    """A step at one size, with a line before and after it, is not reported."""
    step = taking(lambda size: size * (1e-8 if size <= 8192 else 1e-6))
    assert excess_seconds(step, _MOST) is None


def test_a_line_is_no_growth() -> None:
    """A call that takes twice as long for twice the input is not reported."""
    assert excess_seconds(taking(lambda size: size * 1e-6), _MOST) is None
