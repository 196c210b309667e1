"""Waits of asynchronous tests: for the tasks of the same loop, or until a condition holds.

A test does not sleep: a pause that is long enough here is too short on a busy machine, and too long
everywhere else.
"""

import asyncio
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 20.0
"""A condition that does not hold by then is a fault, also on a busy machine."""
_PASSES: Final = 2000
"""First passes of the loop, each of which is checked: its own tasks do and undo things in them."""
_PAUSE_S: Final = 0.001
"""Pause between two later checks: the kernel, a thread or another process is waited for."""


async def settle(passes: int = 20) -> None:
    """Let the event loop pass so often: what is ready runs, and so does what that makes ready."""
    for _ in range(passes):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object], *, within_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds that no event tells; raises TimeoutError."""
    async with asyncio.timeout(within_s):
        for _ in range(_PASSES):
            if condition():
                return
            await asyncio.sleep(0)
        while not condition():
            await asyncio.sleep(_PAUSE_S)
