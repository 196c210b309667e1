"""Cost of a call: bytecodes of Python code, which are counted, and processor time, which is measured.

Bytecodes are the same on every machine. They leave out what C code does inside of one of them:
a regular expression, a search, a copy. So the processor time is looked at too, where there is
enough of it to tell a line from a parabola.
"""

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
"""For twice the input: a line gives 2, a parabola 4."""
_TRIES: Final = 6


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


def seconds(call: Call, times: int = 1) -> float:
    """Return the least processor time of a call."""
    least = float("inf")
    for _ in range(times):
        begun_s = process_time()
        call()
        least = min(least, process_time() - begun_s)
    return least


def excess_steps(make: Callable[[int], Call], size: int) -> str | None:
    """Return how the bytecodes grow from `size` to its double; None: no faster than the input."""
    once, twice = steps(make(size)), steps(make(2 * size))
    if twice <= _TIMES_STEPS * once + _MORE_STEPS:
        return None
    return f"{once} bytecodes for {size} bytes, {twice} for twice as much"


def excess_seconds(make: Callable[[int], Call], most: int) -> str | None:
    """Return how the time grows up to the size `most`; None: no faster than the input."""
    size = min(most, 1 << 12)
    while seconds(make(size)) < _ENOUGH_S:
        if size >= most:
            return None
        size = min(4 * size, most)
    found = ""
    for tries in range(1, _TRIES + 1):
        half, whole = seconds(make(size // 2), tries), seconds(make(size), tries)
        if whole < _TIMES_SECONDS * half or whole < _ENOUGH_S / 2:
            return None
        found = f"{half:.4f} s for {size // 2} bytes, {whole:.4f} s for twice as much"
    return found
