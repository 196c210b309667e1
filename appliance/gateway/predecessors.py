"""Predecessors: gateway processes that were replaced, whose requests a drain waits for too.

Each of those processes keeps its counts in a file beside the state, as long as it lives.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from appliance.model.json_reader import decode_json
from appliance.system.files.regular import read_small_file, replace_volatile

_PREFIX: Final = "ending."
_MAX_BYTES: Final = 1 << 20
_UNREADABLE: Final = (OSError, ValueError, AttributeError, TypeError)
_CHECK_EVERY_S: Final = 0.1


class Traffic(Protocol):
    """Requests of one gateway process or of several."""

    def in_flight(self, names: Iterable[str]) -> int:
        """Return how many requests were sent to these profiles and are not over."""
        ...

    async def drain(self, names: Iterable[str], timeout_s: float) -> tuple[int, int]:
        """Wait for these requests, then cut the rest; return how many finished and were cut."""
        ...


class Predecessors:
    """Counts of requests in flight of every replaced process, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._published: Mapping[str, int] | None = None
        """Counts that this process publishes; None: it has not been replaced."""

    def publish(self, counts: Mapping[str, int]) -> None:
        """Write the counts by profile of this process, which was replaced."""
        if counts == self._published:
            return
        self._published = dict(counts)
        new = self._own.with_name(f".{self._own.name}")
        with contextlib.suppress(OSError):
            replace_volatile(self._own, new, json.dumps(self._published))

    def withdraw(self) -> None:
        """Remove the counts of this process."""
        with contextlib.suppress(OSError):
            self._own.unlink(missing_ok=True)

    def in_flight(self, names: Iterable[str]) -> int:
        """Return how many requests to these profiles the living processes have in flight."""
        chosen = set(names)
        return sum(n for counts in self._counts() for name, n in counts if name in chosen)

    def any_alive(self) -> bool:
        """Tell whether any process that was replaced still lives."""
        return any(True for _ in self._counts())

    @property
    def _own(self) -> Path:
        return self._directory / f"{_PREFIX}{os.getpid()}"

    def _counts(self) -> Iterator[list[tuple[str, int]]]:
        for path in self._directory.glob(f"{_PREFIX}*"):
            if not _is_alive(path.name.removeprefix(_PREFIX)):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                continue
            counts: list[tuple[str, int]] = []
            with contextlib.suppress(*_UNREADABLE):
                document = decode_json(read_small_file(path, _MAX_BYTES))
                counts = [(str(name), int(n)) for name, n in document.items()]
            yield counts


class CombinedTraffic:
    """Requests of this process and of those that it has replaced."""

    def __init__(self, own: Traffic, predecessors: Predecessors) -> None:
        self._own = own
        self._predecessors = predecessors

    def in_flight(self, names: Iterable[str]) -> int:
        """Return how many requests were sent to these profiles and are not over."""
        names = tuple(names)
        return self._own.in_flight(names) + self._predecessors.in_flight(names)

    async def drain(self, names: Iterable[str], timeout_s: float) -> tuple[int, int]:
        """Wait for all requests, then cut those of this process that are left.

        Those of other processes end with the engine, and are counted as cut.
        """
        names = tuple(names)
        before = self._predecessors.in_flight(names)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(self._wait(names, timeout_s)) if before else None
            finished, cut = await self._own.drain(names, timeout_s)
        left = 0 if waiting is None else waiting.result()
        return finished + max(0, before - left), cut + left

    async def _wait(self, names: tuple[str, ...], timeout_s: float) -> int:
        """Wait for the other processes; return how many requests are left at the deadline."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while True:
            left = self._predecessors.in_flight(names)
            if not left or loop.time() >= end_s:
                return left
            await asyncio.sleep(_CHECK_EVERY_S)


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
