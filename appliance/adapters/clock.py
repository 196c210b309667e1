"""The real clock."""

import time


class SystemClock:
    """The port `Clock`."""

    def unix_s(self) -> float:
        """Wall clock, seconds since the epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """A clock that never goes back, in seconds."""
        return time.monotonic()
