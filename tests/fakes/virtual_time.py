"""Event loop with virtual time: where nothing is ready, its clock jumps to the next timer.

A test that waits for hours of timers ends at once, in the same order on a busy machine. What a
test would have to wait for in real time is refused, so that the clock never jumps past it:
descriptors (sockets, pipes, child processes) and threads. Files are read as on every loop.

Tests with the mark ``virtual_time`` run on it.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Never

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_START_S: Final = 10_000.0
"""Not 0: a time that passes for "never" is a fault that the real clock does not show either."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Event loop whose `time` is virtual."""

    def __init__(self) -> None:
        self._clock = _ClockSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._clock.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., object], *args: object) -> Never:  # noqa: ARG002
        """Refuse a thread, which takes real time."""
        raise RuntimeError(f"virtual time does not wait for a thread: {func!r}")


class _ClockSelector(selectors.SelectSelector):
    """Selector that moves the clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = _START_S

    def register(
        self, fileobj: "FileDescriptorLike", events: int, data: Any = None
    ) -> selectors.SelectorKey:
        # The first descriptor is the loop's own, by which signals wake it.
        if self.get_map():
            raise RuntimeError(f"virtual time does not wait for descriptor {fileobj}")
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the test waits for what no timer and no task will do")
        if not (ready := super().select(0)):
            self.now_s += max(0.0, timeout)
        return ready


async def advance(seconds: float) -> None:
    """Let virtual time pass; what is due in it happens."""
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop), "not in virtual time"
    await asyncio.sleep(seconds)
