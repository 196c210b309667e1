"""Hub of operations' events for processes that watch all day: each operation in turn, whole, in its order.

A follower is told of the operation that runs when it comes, from its first event on, and of each later one.
Steps within a phase that passed before it came are left out (`EventFeed`).
"""

import asyncio
from collections.abc import AsyncIterator

from appliance.supervisor.operation_runner import Transaction
from appliance.wire.control_events import OperationChange


class OperationHub:
    """Hub of the transactions that begin."""

    def __init__(self) -> None:
        self._followers: set[asyncio.Queue[Transaction]] = set()

    def begin(self, transaction: Transaction) -> None:
        """Hand a transaction that begins to every follower. Never blocks."""
        for queue in self._followers:
            queue.put_nowait(transaction)

    async def follow(
        self, running: Transaction | None
    ) -> AsyncIterator[tuple[Transaction, OperationChange]]:
        """Yield every event with its transaction, for ever.

        Args:
            running: The one that runs now, whose events are told first; None: none does.
        """
        queue: asyncio.Queue[Transaction] = asyncio.Queue()
        if running is not None:
            queue.put_nowait(running)
        self._followers.add(queue)
        try:
            while True:
                transaction = await queue.get()
                async for event in transaction.feed.follow():
                    yield transaction, event
        finally:
            self._followers.discard(queue)
