"""The port `Clock` on the virtual time of a fake systemd."""

from typing import Final, Protocol

NEVER: Final = float("inf")


class HasTime(Protocol):
    """Object with a time."""

    now_s: float


class FakeClock:
    """The port `Clock`."""

    def __init__(self, source: HasTime) -> None:
        self._source = source
        self.step_s = 0.0
        """Seconds by which the wall clock was set."""

    def unix_s(self) -> float:
        return self._source.now_s + self.step_s

    def monotonic_s(self) -> float:
        return self._source.now_s
