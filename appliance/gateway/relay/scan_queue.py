"""Queue of long request bodies that are being scanned, one step in each turn of the event loop.

Between two steps all other connections are served. Owners take turns, however many bodies one has
sent.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from typing import Final

from appliance.domain.gateway import Refusal
from appliance.gateway.callback_guard import end_faulty
from appliance.gateway.http.request_body import body_refusal
from appliance.planning.routing.form_body import FormBody
from appliance.planning.routing.json_body import BodyError, JsonBody
from appliance.planning.routing.refusals import GATEWAY_FAULT

ScannedBody = JsonBody | FormBody | None
"""Body after a scan; None: the body is not read."""
Steps = Generator[None, None, ScannedBody]
Done = Callable[[ScannedBody | Refusal], None]


class Scan:
    """Scan of one body.

    Args:
        steps: Steps of the scan.
        done: Called with the result; a guarded callback.
    """

    __slots__ = ("done", "steps")

    def __init__(self, steps: Steps, done: Done) -> None:
        self.steps: Final = steps
        self.done: Done | None = done
        """Callback for the result; None: the scan was cancelled."""

    def cancel(self) -> None:
        """Stop the scan without calling `done`."""
        self.done = None


class ScanQueue:
    """Scans of all clients."""

    def __init__(self) -> None:
        self._scans: OrderedDict[str, deque[Scan]] = OrderedDict()
        """Scans by owner, the next one first."""

    @property
    def busy(self) -> bool:
        return bool(self._scans)

    def add(self, owner: str, steps: Steps, done: Done) -> Scan:
        """Scan a body in steps, then call `done`, from the event loop."""
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
        # Done last, because `done` may add another scan.
        if not isinstance(result, Scan) and scan.done is not None:
            scan.done(result)

    def _advance(self, scan: Scan) -> ScannedBody | Refusal | Scan:
        """Take a step; return the scan itself while there are more."""
        if scan.done is None:
            return None
        try:
            next(scan.steps)
        except StopIteration as end:
            scanned: ScannedBody = end.value
            return scanned
        except BodyError as error:
            # Not the error itself, whose frames hold the body until the next garbage collection.
            return body_refusal(error)
        except Exception as error:  # noqa: BLE001 - the guard of the others in the queue
            end_faulty(error)
            return GATEWAY_FAULT
        return scan
