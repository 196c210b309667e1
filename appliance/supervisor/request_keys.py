"""Keys of requests that a client may repeat: the same request again is the same operation.

A client that lost an answer cannot know whether its switch was accepted. It sends the same key again,
and is told of the operation that the first request began, running or over. Keys are each operator's own. They
are in memory, for a day and `MOST_KEYS` of them: after a restart of the supervisor a repeated switch
is a new one, which finds its profile serving.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from appliance.model.errors import BadRequestError
from appliance.model.record import Record

KEY_S: Final = 24 * 3600.0
MOST_KEYS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRequest:
    """Request that had a key, and the operation that it began or joined."""

    request: Record
    operation: int
    at_s: float
    """Monotonic time."""


class RequestKeys:
    """Requests of the last day by operator and key."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], KeyedRequest] = OrderedDict()

    def operation(self, uid: int, key: str, request: Record, now_s: float) -> int | None:
        """Return the operation of a request that was made before; None: the key is new, or a day old.

        Raises:
            BadRequestError: the key was used for another request.
        """
        kept = self._kept.get((uid, key))
        if kept is None or now_s - kept.at_s >= KEY_S:
            return None
        if kept.request != request:
            raise BadRequestError("this key was used for another request: choose a new one")
        return kept.operation

    def keep(self, uid: int, key: str, request: Record, operation: int, now_s: float) -> None:
        """Keep which operation a request has begun."""
        self._kept.pop((uid, key), None)
        self._kept[uid, key] = KeyedRequest(request=request, operation=operation, at_s=now_s)
        while len(self._kept) > MOST_KEYS:
            self._kept.popitem(last=False)
