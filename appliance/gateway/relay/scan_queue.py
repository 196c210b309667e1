"""The queue of long bodies that are being read: one step each turn of the event loop.

Between two steps everybody else is served. Owners take turns, however many bodies one has sent.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from typing import Final

from appliance.planning.routing.bodies import BodyError, Document
from appliance.planning.routing.multipart import Form

Found = Document | Form | None
Steps = Generator[None, None, Found]
Done = Callable[[Found | BodyError], None]


class Scan:
    """One body that is being read.

    Args:
        steps: Reads it.
        done: Called with what was found.
    """

    __slots__ = ("done", "steps")

    def __init__(self, steps: Steps, done: Done) -> None:
        self.steps: Final = steps
        self.done: Done | None = done
        """None: nobody wants to know any more."""

    def cancel(self) -> None:
        """Stop reading; nobody is told."""
        self.done = None


class ScanQueue:
    """Bodies of all clients that are being read."""

    def __init__(self) -> None:
        self._scans: OrderedDict[str, deque[Scan]] = OrderedDict()
        """By owner, who is next first."""

    @property
    def busy(self) -> bool:
        """Whether a body is being read."""
        return bool(self._scans)

    def add(self, owner: str, steps: Steps, done: Done) -> Scan:
        """Read a body in steps, then call `done`, from the event loop."""
        scan = Scan(steps, done)
        if not self._scans:
            asyncio.get_running_loop().call_soon(self._step)
        self._scans.setdefault(owner, deque()).append(scan)
        return scan

    def _step(self) -> None:
        owner, scans = self._scans.popitem(last=False)
        scan = scans[0]
        result = self._advance(scan)
        if not isinstance(result, Scan):
            scans.popleft()
        if scans:
            self._scans[owner] = scans
        if self._scans:
            asyncio.get_running_loop().call_soon(self._step)
        # Last: it may add another one.
        if not isinstance(result, Scan) and scan.done is not None:
            scan.done(result)

    def _advance(self, scan: Scan) -> Found | BodyError | Scan:
        """Take a step; the scan itself while there are more."""
        if scan.done is None:
            return None
        try:
            next(scan.steps)
        except StopIteration as end:
            found: Found = end.value
            return found
        except BodyError as error:
            # Its frames would hold the body until the garbage collector comes by.
            return error.with_traceback(None)
        return scan
