"""Time that a pin does not depend on: an event loop's clock that stands still, and the time zone."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

_TURNS = 40
"""Turns of the event loop after which every task waits for time or for a withheld answer."""


class FrozenLoop(asyncio.SelectorEventLoop):
    """Event loop whose clock stands still, so that no timeout passes on a busy machine."""

    now_s = 0.0

    def time(self) -> float:
        """Return `now_s`, which only a pin changes."""
        return self.now_s


async def settle() -> None:
    """Give every task its turns until all of them wait."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


@contextmanager
def utc() -> Iterator[None]:
    """Make UTC the local time of this process."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()
