"""Clients of the sockets of other daemons of this box: supervisor (tokens), notifier, auditor, checker.

A daemon that does not answer is an expected outcome: it may start, or be missing, and the caller goes on.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from appliance.model.alerts import Message, SendOutcome, SendResult
from appliance.model.errors import (
    ApplianceError,
    BusyError,
    PermissionDeniedError,
    UnreachableError,
)
from appliance.model.operators import TokenOperator
from appliance.model.targets import TargetStanding
from appliance.wire.async_client import details_of, open_conversation
from appliance.wire.conversation import ErrorEvent, RequestRefusedError, ResultEvent
from appliance.wire.helpers import (
    AUDIT,
    CHECK,
    NOTIFY,
    AuditReport,
    CancelScheduledRequest,
    CheckResult,
    CheckUrlRequest,
    Listener,
    ListenersRequest,
    NotifyRequest,
    PingRequest,
    ScheduleRequest,
    SendRequest,
    TargetsRequest,
)
from appliance.wire.json_values import number_in, objects_in, text_in
from appliance.wire.status_socket import STATUS, AnyTokenRequest, TokenOwnerRequest
from appliance.wire.typed_json import JsonValueError, from_json

_log = logging.getLogger(__name__)

TOKEN_WITHIN_S: Final = 3.0
"""Time for an answer about a token."""
NOTIFY_DEADLINE_S: Final = 45.0
"""Time for an answer: more than twice what the notifier allows one try."""
NOTIFY_GREETING_S: Final = 20.0
"""Time for the greeting: the notifier may have to start, on a busy box."""
_AUDIT_WITHIN_S: Final = 3.0
"""Longer than an audit may take; the first one waits for the auditor's start, too."""
_CHECK_MORE_S: Final = 2.0
"""Time that an answer may take beyond that of the check, such as the checker's start."""


class TokenOwners:
    """Operators by their tokens.

    Args:
        status_socket: The supervisor's.
    """

    def __init__(self, status_socket: Path) -> None:
        self._path = status_socket

    async def operator_of(self, token: str) -> TokenOperator:
        """Return the operator for whom a token stands at this moment.

        Raises:
            PermissionDeniedError: the token stands for no operator.
            BusyError: it is wrong, and too many wrong tokens with its id came lately.
            UnreachableError: the supervisor does not answer, so no operator can act.
        """
        request = TokenOwnerRequest(token)
        try:
            return from_json(
                TokenOperator,
                await details_of(STATUS, self._path, request, within_s=TOKEN_WITHIN_S),
            )
        except PermissionDeniedError as error:  # of the socket: nothing is said of the token
            raise UnreachableError(str(error)) from error
        except RequestRefusedError as error:
            match error.kind:
                case "denied" | "bad-request":
                    raise PermissionDeniedError(str(error)) from error
                case "busy":
                    raise BusyError(str(error)) from error
                case _:
                    raise UnreachableError(str(error)) from error
        except JsonValueError as error:
            raise UnreachableError(STATUS.not_our_protocol) from error

    async def is_any_usable(self) -> bool:
        """Tell whether somebody can act by a token at this moment. Raises `ApplianceError`."""
        details = await details_of(STATUS, self._path, AnyTokenRequest(), within_s=TOKEN_WITHIN_S)
        return details.get("usable") is True


class NotifyClient:
    """Client of the notifier.

    Args:
        path: The socket.
        deadline_s: Time for an answer.
    """

    def __init__(self, path: Path, *, deadline_s: float = NOTIFY_DEADLINE_S) -> None:
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
                open_conversation(
                    NOTIFY, self._path, request, greeting_s=NOTIFY_GREETING_S
                ) as events,
            ):
                async for event in events:
                    if isinstance(event, ResultEvent):
                        return event
                    if isinstance(event, ErrorEvent):
                        raise RequestRefusedError(event)
        except TimeoutError as error:
            raise UnreachableError("the notifier does not answer in time") from error
        raise UnreachableError(NOTIFY.not_our_protocol)


class AuditClient:
    """Client of the auditor.

    Args:
        path: Of audit.sock.
        patience_s: For an answer.
    """

    def __init__(self, path: Path, *, patience_s: float = _AUDIT_WITHIN_S) -> None:
        self._path = path
        self._patience_s = patience_s
        self._trouble = ""

    async def listeners(self, pids: Sequence[int]) -> tuple[Listener, ...] | None:
        """Return the listening sockets of backends and of processes; None: the auditor does not answer.

        Where the auditor found more than it sends, the part that it has sent.
        """
        request = ListenersRequest(tuple(pids))
        try:
            details = await details_of(AUDIT, self._path, request, within_s=self._patience_s)
            report = from_json(AuditReport, details)
        except (ApplianceError, ValueError) as error:
            self._note(f"listening sockets are not known: {error}")
            return None
        self._note(
            "the auditor tells a part of the listening sockets alone" if report.truncated else ""
        )
        return report.listeners

    def _note(self, trouble: str) -> None:
        """Log a trouble when it begins, not each time."""
        if trouble and trouble != self._trouble:
            _log.warning("%s", trouble)
        self._trouble = trouble


class CheckClient:
    """Client of the checker.

    Args:
        path: Of check.sock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._trouble = ""

    async def check(self, url: str, timeout_s: float) -> CheckResult | None:
        """GET a URL once; None: the checker does not answer, so nothing is known of the URL.

        Args:
            url: Of http or https, without a user.
            timeout_s: Time for the answer, at most 60 s.
        """
        request = CheckUrlRequest(url, timeout_s)
        try:
            details = await details_of(
                CHECK, self._path, request, within_s=timeout_s + _CHECK_MORE_S
            )
            result = from_json(CheckResult, details)
        except (ApplianceError, ValueError) as error:
            if str(error) != self._trouble:
                _log.warning("watched addresses are not checked: %s", error)
            self._trouble = str(error)
            return None
        self._trouble = ""
        return result
