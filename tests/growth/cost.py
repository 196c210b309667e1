"""Cost of a call: bytecodes of Python code, which are counted, and processor time, which is measured.

Bytecodes are the same on every machine. They leave out what C code does inside of one of them:
a regular expression, a search, a copy. So the processor time is looked at too, where there is
enough of it to tell a line from a parabola.
"""

import gc
import sys
from collections.abc import Callable
from time import process_time
from types import FrameType
from typing import Any, Final

Call = Callable[[], object]

_ENOUGH_S: Final = 0.01
"""Processor time that can be told from the noise; whatever takes less at its largest is no danger."""
_TIMES_STEPS: Final = 2.2
_MORE_STEPS: Final = 400
_TIMES_SECONDS: Final = 3.0
"""Ratio of times for twice the input: a line gives 2, a parabola 4."""
_TRIES: Final = 20


def steps(call: Call) -> int:
    """Return how many bytecodes of Python a call executes."""
    count = 0

    def traced(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001
        nonlocal count
        if event == "opcode":
            count += 1
        else:
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def seconds(call: Call) -> float:
    """Return the processor time of a call, without that of the garbage collector.

    A collection looks at every object of the process, so it costs what other tests have left.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        begun_s = process_time()
        call()
        return process_time() - begun_s
    finally:
        if was_enabled:
            gc.enable()


def excess_steps(make: Callable[[int], Call], size: int) -> str | None:
    """Return how the bytecodes grow from `size` to its double; None: no faster than the input."""
    once, twice = steps(make(size)), steps(make(2 * size))
    if twice <= _TIMES_STEPS * once + _MORE_STEPS:
        return None
    return f"{once} bytecodes for {size} bytes, {twice} for twice as much"


def excess_seconds(make: Callable[[int], Call], most: int) -> str | None:
    """Return how the time grows up to the size `most`; None: no faster than the input.

    Where a parser takes another path for long input, one doubling costs more than twice the time,
    and the doublings before and after it do not: growth shows in two of them in a row.
    """
    size = min(most, 1 << 12)
    while seconds(make(size)) < _ENOUGH_S:
        if size >= most:
            return None
        size = min(4 * size, most)
    excess = _excess_of_doubling(make, size)
    if excess is None:
        return None
    other = 2 * size if 2 * size <= most else size // 2
    return excess if _excess_of_doubling(make, other) is not None else None


def _excess_of_doubling(make: Callable[[int], Call], size: int) -> str | None:
    """Return how the time grows from half of `size` to `size`; None: no faster than the input."""
    half = whole = float("inf")
    for _ in range(_TRIES):
        # What disturbs a measurement only adds to it: the least of each is what the call takes.
        half, whole = min(half, seconds(make(size // 2))), min(whole, seconds(make(size)))
        if whole < _TIMES_SECONDS * half or whole < _ENOUGH_S / 2:
            return None
    return f"{half:.4f} s for {size // 2} bytes, {whole:.4f} s for twice as much"
