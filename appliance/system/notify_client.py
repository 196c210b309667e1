"""Client of notify.sock: the health agent has messages sent, and never learns an address.

No method raises for a notifier that is away: that is a try that may succeed later.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from appliance.model.alerts import Message, SendOutcome, SendResult
from appliance.model.errors import ApplianceError, UnreachableError
from appliance.model.targets import TargetStanding
from appliance.wire.async_client import open_conversation
from appliance.wire.conversation import ErrorEvent, RequestRefusedError, ResultEvent
from appliance.wire.helpers import (
    NOTIFY,
    CancelScheduledRequest,
    NotifyRequest,
    PingRequest,
    ScheduleRequest,
    SendRequest,
    TargetsRequest,
)
from appliance.wire.json_values import number_in, objects_in, text_in
from appliance.wire.typed_json import JsonValueError, from_json

DEADLINE_S: Final = 45.0
"""Time for an answer: more than twice what the notifier allows one try."""
GREETING_S: Final = 20.0
"""Time for the greeting: the notifier may have to start, on a busy box."""


class NotifyClient:
    """Client of the notifier.

    Args:
        path: The socket.
        deadline_s: Time for an answer.
    """

    def __init__(self, path: Path, *, deadline_s: float = DEADLINE_S) -> None:
        self._path = path
        self._deadline_s = deadline_s

    async def send(self, target: str, message: Message) -> SendResult:
        """Have a message sent to a target."""
        return await self._try(SendRequest(target, asdict(message)))

    async def schedule(self, target: str, message: Message, delay_s: float) -> SendResult:
        """Have a message delivered later, in place of the last one of the same sequence id."""
        return await self._try(ScheduleRequest(target, asdict(message), delay_s))

    async def cancel(self, target: str, sequence_id: str) -> SendResult:
        """Have the scheduled message of a sequence id taken back."""
        return await self._try(CancelScheduledRequest(target, sequence_id))

    async def ping(self) -> SendResult:
        """Have the outside watch pinged; `refused`: none is configured."""
        return await self._try(PingRequest())

    async def targets(self) -> Sequence[TargetStanding]:
        """Return the targets as the notifier has them.

        Raises:
            UnreachableError: the notifier does not answer.
        """
        try:
            result = await self._ask(TargetsRequest())
            return [from_json(TargetStanding, row) for row in objects_in(result.details, "targets")]
        except JsonValueError as error:
            raise UnreachableError(NOTIFY.not_our_protocol) from error

    async def _try(self, request: NotifyRequest) -> SendResult:
        try:
            result = await self._ask(request)
        except ApplianceError as error:
            # Also where the notifier cannot read the request: it may be of another release.
            return SendResult(outcome=SendOutcome.RETRY, text=str(error))
        word = result.outcome
        return SendResult(
            outcome=SendOutcome(word) if word in set(SendOutcome) else SendOutcome.RETRY,
            text=text_in(result.details, "text"),
            retry_after_s=number_in(result.details, "retry_after_s"),
        )

    async def _ask(self, request: NotifyRequest) -> ResultEvent:
        """Return the result of a request. Raises `ApplianceError`."""
        try:
            async with (
                asyncio.timeout(self._deadline_s),
                open_conversation(NOTIFY, self._path, request, greeting_s=GREETING_S) as events,
            ):
                async for event in events:
                    if isinstance(event, ResultEvent):
                        return event
                    if isinstance(event, ErrorEvent):
                        raise RequestRefusedError(event)
        except TimeoutError as error:
            raise UnreachableError("the notifier does not answer in time") from error
        raise UnreachableError(NOTIFY.not_our_protocol)
