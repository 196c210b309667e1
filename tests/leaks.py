"""Check that a test leaves no asyncio task, no child process and no open socket behind.

A conftest imports both fixtures, which then apply to every test below it. What fixtures of a wider
scope hold is open before the test begins, and is allowed. One synchronous test costs 0.2 to 0.3 ms,
an asynchronous one 0.5 ms, most of it fixtures.
"""

import asyncio
import contextlib
import inspect
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

_PASSES: Final = 20
"""Passes of the event loop that a cancelled task may take to end."""


@pytest.fixture(autouse=True)
def no_child_or_socket_left() -> Iterator[None]:
    """Fail a test that leaves a child process or a socket that was not there before."""
    children, sockets = _children(), _sockets()
    yield
    left = sorted(_described(pid) for pid in _children() - children)
    left += [f"socket {inode}" for inode in sorted(_sockets() - sockets)]
    assert not left, f"the test leaves {', '.join(left)}"


@pytest.fixture(autouse=True)
def no_task_left(request: pytest.FixtureRequest, no_child_or_socket_left: None) -> None:  # noqa: ARG001
    """Fail an asynchronous test that leaves a task; what its loop holds ends before the above."""
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("no_task_left_on_loop")


@pytest.fixture
async def no_task_left_on_loop() -> AsyncIterator[None]:
    """Compare the tasks of the loop of the test with those before it."""
    before = asyncio.all_tasks()
    yield
    passes = 0
    while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
        passes += 1
        assert passes < _PASSES, f"the test leaves {', '.join(sorted(map(repr, left)))}"
        await asyncio.sleep(0)


def _children() -> set[int]:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):  # of a thread that has just ended
            found.update(map(int, path.read_text().split()))
    return found


def _described(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return f"child {pid} ({command or 'ended, not waited for'})"


def _sockets() -> set[int]:
    """Return the open sockets of this process, by inode."""
    with os.scandir("/proc/self/fd") as entries:
        found = [os.fstat(int(entry.name)) for entry in entries]
    return {status.st_ino for status in found if stat.S_ISSOCK(status.st_mode)}
