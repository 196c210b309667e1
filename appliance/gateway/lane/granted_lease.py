"""Lease of the lane that was granted: it counts the requests of others."""

import asyncio
import os
from collections.abc import Sequence
from hmac import compare_digest

from appliance.wire.lane import LaneOutcome


class GrantedLease:
    """Lease of the lane: a `LaneHolder`.

    Args:
        names: Profiles that it is for.
        requests: Requests of others that are in flight when it begins.
    """

    def __init__(self, names: Sequence[str], *, requests: int = 0) -> None:
        self.names = tuple(names)
        self.token = os.urandom(16).hex()
        self.requests = requests
        """Count of requests of others since the lease began."""
        self.end_reason: tuple[LaneOutcome, str] | None = None
        """Outcome of the lease, and why; None: it lasts."""
        self.changed = asyncio.Event()
        """Event that is set when the count has grown, and at the end."""
        self.ended = asyncio.Event()
        if requests:
            self.changed.set()

    def request_sent(self, token: bytes | None) -> None:
        """Count a request that goes to an engine next, unless it is the holder's own."""
        if not self.owns(token):
            self.requests += 1
            self.changed.set()

    def make_way(self) -> None:
        """Do nothing for a request that waits: it is counted when it is sent."""

    def owns(self, token: bytes | None) -> bool:
        """Tell whether a request is the holder's own, by its header."""
        return token is not None and compare_digest(token, self.token.encode())

    def end(self, outcome: LaneOutcome, why: str = "") -> None:
        """End the lease, unless it is over."""
        if self.end_reason is None:
            self.end_reason = outcome, why
            self.changed.set()
            self.ended.set()
