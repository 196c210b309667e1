"""Pauses between looks at a box."""

import time
from typing import Final

_FIRST_S: Final = 0.02
_LONGEST_S: Final = 0.2
_GROWTH: Final = 1.5


class Polling:
    """Looks at a box until a time is over, each after a longer pause than the one before.

    A look is a process in the box, some 20 ms of CPU time, which tests beside this one wait for.
    """

    def __init__(self, timeout_s: float) -> None:
        self._deadline_s = time.monotonic() + timeout_s
        self._pause_s = _FIRST_S

    def pause(self) -> bool:
        """Wait until the next look; return False once the time is over."""
        if time.monotonic() > self._deadline_s:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * _GROWTH, _LONGEST_S)
        return True
