"""Queue of request bodies that are decoded or scanned, one step in each turn of the event loop.

Between two steps all other connections are served. Owners take turns, however many bodies one has
sent.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, Generic, TypeVar

from appliance.gateway.callback_guard import end_faulty
from appliance.gateway.http.request_body import body_refusal
from appliance.model.gateway import Refusal
from appliance.routing.json_scanner import BodyError
from appliance.routing.refusals import GATEWAY_FAULT

_Result_co = TypeVar("_Result_co", covariant=True)


class Scan(Generic[_Result_co]):
    """Scan of one body.

    Args:
        steps: Steps of the scan.
        done: Called with the result; a guarded callback.
    """

    __slots__ = ("_done", "_steps")

    def __init__(
        self,
        steps: Generator[None, None, _Result_co | Refusal],
        done: Callable[[_Result_co | Refusal], None],
    ) -> None:
        self._steps: Final = steps
        self._done: Callable[[_Result_co | Refusal], None] | None = done
        """Callback for the result; None: the scan was cancelled."""

    def cancel(self) -> None:
        """Stop the scan without calling `done`."""
        self._done = None

    def advance(self) -> Callable[[], None] | None:
        """Take a step; return what is to be called at the end, or None while there are more."""
        if self._done is None:
            return _nothing
        result: _Result_co | Refusal
        try:
            next(self._steps)
        except StopIteration as end:
            result = end.value
        except BodyError as error:
            # Not the error itself, whose frames hold the body until the next garbage collection.
            result = body_refusal(error)
        except Exception as error:  # noqa: BLE001 - the guard of the others in the queue
            end_faulty(error)
            result = GATEWAY_FAULT
        else:
            return None
        return partial(self._finish, result)

    def _finish(self, result: _Result_co | Refusal) -> None:
        if self._done is not None:
            self._done(result)


def _nothing() -> None:
    """End a scan that was cancelled."""


class ScanQueue:
    """Scans of all clients."""

    def __init__(self) -> None:
        self._scans: OrderedDict[str, deque[Scan[object]]] = OrderedDict()
        """Scans by owner, the next one first."""

    @property
    def busy(self) -> bool:
        return bool(self._scans)

    def add(
        self,
        owner: str,
        steps: Generator[None, None, _Result_co | Refusal],
        done: Callable[[_Result_co | Refusal], None],
    ) -> Scan[_Result_co]:
        """Scan a body in steps, then call `done`, from the event loop."""
        scan = Scan(steps, done)
        if not self._scans:
            asyncio.get_running_loop().call_soon(self._step)
        self._scans.setdefault(owner, deque()).append(scan)
        return scan

    def _step(self) -> None:
        owner, scans = self._scans.popitem(last=False)
        finish = scans[0].advance()
        if finish is not None:
            scans.popleft()
        if scans:
            self._scans[owner] = scans
        if self._scans:
            asyncio.get_running_loop().call_soon(self._step)
        # Last, because it may add another scan.
        if finish is not None:
            finish()
