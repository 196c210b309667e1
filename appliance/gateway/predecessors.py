"""What processes that were replaced still have under way, so that a drain waits for it too.

Each of them keeps its counts in a file beside the state, as long as it lives.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from appliance.adapters.files.regular import read_small_file, replace_volatile

_PREFIX: Final = "ending."
_MAX_BYTES: Final = 1 << 20
_UNREADABLE: Final = (OSError, ValueError, AttributeError, TypeError, RecursionError)
_LOOK_EVERY_S: Final = 0.1


class Traffic(Protocol):
    """The requests of one process."""

    def in_flight(self, names: Iterable[str]) -> int:
        """Requests that were sent to these profiles and are not over."""
        ...

    async def drain(self, names: Iterable[str], timeout_s: float) -> tuple[int, int]:
        """Wait for them, then cut those that are left: how many finished, how many were cut."""
        ...


class Remainder:
    """The counts of every process in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._told: Mapping[str, int] | None = None

    def tell(self, counts: Mapping[str, int]) -> None:
        """This process was replaced, and has so much under way by profile."""
        if counts == self._told:
            return
        self._told = dict(counts)
        new = self._own.with_name(f".{self._own.name}")
        with contextlib.suppress(OSError):
            replace_volatile(self._own, new, json.dumps(self._told))

    def withdraw(self) -> None:
        """This process has nothing under way any more."""
        with contextlib.suppress(OSError):
            self._own.unlink(missing_ok=True)

    def in_flight(self, names: Iterable[str]) -> int:
        """What those that live have under way for these profiles."""
        chosen = set(names)
        return sum(n for counts in self._counts() for name, n in counts if name in chosen)

    @property
    def _own(self) -> Path:
        return self._directory / f"{_PREFIX}{os.getpid()}"

    def _counts(self) -> Iterator[list[tuple[str, int]]]:
        for path in self._directory.glob(f"{_PREFIX}*"):
            if not _lives(path.name.removeprefix(_PREFIX)):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                continue
            with contextlib.suppress(*_UNREADABLE):
                counts = json.loads(read_small_file(path, _MAX_BYTES))
                yield [(str(name), int(n)) for name, n in counts.items()]


class AllTraffic:
    """The requests of this process, and of those that it has replaced."""

    def __init__(self, ours: Traffic, remainder: Remainder) -> None:
        self._ours = ours
        self._remainder = remainder

    def in_flight(self, names: Iterable[str]) -> int:
        """Requests that were sent to these profiles and are not over."""
        names = tuple(names)
        return self._ours.in_flight(names) + self._remainder.in_flight(names)

    async def drain(self, names: Iterable[str], timeout_s: float) -> tuple[int, int]:
        """Wait for all, then cut ours that are left; theirs end with the engine, and are told."""
        names = tuple(names)
        before = self._remainder.in_flight(names)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(self._waited(names, timeout_s)) if before else None
            finished, cut = await self._ours.drain(names, timeout_s)
        left = 0 if waiting is None else waiting.result()
        return finished + max(0, before - left), cut + left

    async def _waited(self, names: tuple[str, ...], timeout_s: float) -> int:
        """How many are left at the deadline, or none before it."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while True:
            left = self._remainder.in_flight(names)
            if not left or loop.time() >= end_s:
                return left
            await asyncio.sleep(_LOOK_EVERY_S)


def _lives(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
