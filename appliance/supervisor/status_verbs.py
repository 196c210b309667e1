"""Verbs of the status socket, for processes that look at the box and can change nothing; readers of engines' logs and metrics."""

import asyncio
import socket
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import asdict
from typing import Any, Final, Protocol, assert_never

from appliance.model.errors import UnknownProfileError
from appliance.model.gateway import EngineMetrics
from appliance.model.json_reader import parse_object
from appliance.model.plain_text import last_redraw, plain
from appliance.model.status import OperationsSection, RecordedOperation, StatusDocument
from appliance.model.wording import short
from appliance.supervisor.access_policy import read_from_watcher
from appliance.supervisor.client_requests import ClientRequests
from appliance.supervisor.memory_sampler import LastLook
from appliance.supervisor.status_feed import StatusFeed
from appliance.supervisor.token_check import TokenCheck
from appliance.supervisor.unit_memory import StatusReader
from appliance.system.ports import Backend, Clock, Host
from appliance.wire.control_events import OperationChange, OperationsRequest, StatusEvent
from appliance.wire.control_requests import CONTROL
from appliance.wire.conversation import ResultEvent
from appliance.wire.server import FEW, Peer, serve_conversations
from appliance.wire.status_socket import (
    MOST_LOG_BYTES,
    MOST_LOG_CHARACTERS,
    PAGE_CHARACTERS,
    STATUS,
    WATCHER_READS_WITHIN_S,
    AnyTokenRequest,
    ClientRequestsRequest,
    CountersRequest,
    DocumentRequest,
    EngineMetricsRequest,
    EnginePageEvent,
    FollowRequest,
    GpuEvidenceRequest,
    LogTailRequest,
    OperationEvent,
    RecordedOperationRequest,
    StatusSocketEvent,
    StatusSocketRequest,
    TokenOwnerRequest,
    WatchRequest,
)

_AT_ONCE: Final = 4
_MOST: Final = 32
"""Engines that are asked at all: more than a box has memory for."""


class EnginePageReader:
    """Reader of the pages.

    Args:
        look: The supervisor's last look at the box.
        backend: Asks an engine.
    """

    def __init__(self, look: LastLook, backend: Backend) -> None:
        self._look = look
        self._backend = backend
        self._turn = asyncio.Lock()

    async def pages(self) -> AsyncGenerator[tuple[str, EngineMetrics | None], None]:
        """Iterate over the profiles that serve; None: the engine has no page, or does not answer in time."""
        async with self._turn:
            catalogue, observed = self._look()
            serving = [name for name in observed.serving() if name in catalogue][:_MOST]
            for first in range(0, len(serving), _AT_ONCE):
                names = serving[first : first + _AT_ONCE]
                asked = (self._backend.metrics(catalogue[name]) for name in names)
                for name, page in zip(names, await asyncio.gather(*asked), strict=True):
                    yield name, page


_REACHES_BACK_S: Final = 7 * 86_400.0


class LogReader:
    """Reader for any number of callers: the journal is asked for one of them at a time.

    Args:
        host: Reads the journal.
        clock: For the time up to which the journal is searched.
        names: Returns the names of the applied profiles.
    """

    def __init__(self, host: Host, clock: Clock, names: Callable[[], Container[str]]) -> None:
        self._host = host
        self._clock = clock
        self._names = names
        self._turn = asyncio.Lock()

    async def lines(self, name: str, most: int) -> list[str]:
        """Return the last lines of the log of a profile, oldest first.

        Raises:
            UnknownProfileError: there is no such profile.
        """
        if name not in self._names():
            raise UnknownProfileError(f'no profile "{short(name)}"')
        since_unix_s = max(0.0, self._clock.unix_s() - _REACHES_BACK_S)
        async with self._turn:
            lines = await self._host.log_tail(name, most, since_unix_s=since_unix_s)
        return _bounded(lines)


def _bounded(lines: Sequence[str]) -> list[str]:
    """Return the newest lines that fit, as plain text, each cut."""
    kept, size = list[str](), 0
    for line in reversed(lines):
        cut = plain(last_redraw(line)[:MOST_LOG_CHARACTERS])
        size += len(cut.encode())
        if size > MOST_LOG_BYTES:
            break
        kept.append(cut)
    return kept[::-1]


Question = (
    DocumentRequest
    | GpuEvidenceRequest
    | OperationsRequest
    | RecordedOperationRequest
    | LogTailRequest
    | TokenOwnerRequest
    | AnyTokenRequest
    | ClientRequestsRequest
    | CountersRequest
)
"""Request whose answer is one result."""
Report = Callable[[], Awaitable[Mapping[str, Any]]]
"""Function that returns a JSON object."""
StatusReport = Callable[[StatusReader], Awaitable[StatusDocument]]
"""Builder of the status document for a reader."""


class OperationSource(Protocol):
    """Source of the operations on record."""

    async def operations(self, most: int) -> OperationsSection:
        """Return the one that runs, and the newest that are over."""
        ...

    async def operation(self, number: int) -> RecordedOperation | None:
        """Return one, also the one that runs; None: it is not on record."""
        ...


class StatusVerbs:
    """Handler of the requests on status.sock.

    Args:
        feed: Feeds those who watch.
        status: Builds the status document for one who asks.
        gpus: Reads the state of the GPUs.
        operations: Has the operations on record.
        events: Yields the events of operations, each with the operation's number.
        log: Reads the log of a profile's engine.
        tokens: Knows for whom tokens stand.
        requests: Lists the requests of clients.
        counters: Reads the figures for statistics.
        pages: Reads the metrics of engines.
        resumed: Waits until an operation that was left open goes on: before, no status is right.
    """

    def __init__(
        self,
        feed: StatusFeed,
        *,
        status: StatusReport,
        gpus: Report,
        operations: OperationSource,
        events: Callable[[], AsyncIterator[tuple[int, OperationChange]]],
        log: LogReader,
        tokens: TokenCheck,
        requests: ClientRequests,
        counters: Report,
        pages: EnginePageReader,
        resumed: Callable[[], Awaitable[None]],
    ) -> None:
        self._feed = feed
        self._status = status
        self._gpus = gpus
        self._operations = operations
        self._events = events
        self._log = log
        self._tokens = tokens
        self._requests = requests
        self._counters = counters
        self._pages = pages
        self._resumed = resumed

    async def serve(self, listener: socket.socket) -> None:
        """Answer for ever."""
        await self._resumed()
        await serve_conversations(
            STATUS,
            listener,
            read_from_watcher,
            self._answer,
            bounds=FEW,
            taken_within_s=WATCHER_READS_WITHIN_S,
        )

    async def _answer(
        self, request: StatusSocketRequest, _peer: Peer
    ) -> AsyncGenerator[StatusSocketEvent, None]:
        match request:
            case WatchRequest():
                async for document in self._feed.documents():
                    yield StatusEvent(document)
            case FollowRequest():
                async for number, event in self._events():
                    line = CONTROL.encode_event(event)
                    yield OperationEvent(number, parse_object(line))
            case EngineMetricsRequest():
                async for part in self._engine_metrics():
                    yield part
            case _:
                yield ResultEvent(details=await self._details(request))

    async def _details(self, request: Question) -> Mapping[str, Any]:  # noqa: PLR0911 - one a question
        """Return the details of the result that answers a question."""
        match request:
            case DocumentRequest(for_person):
                reader = StatusReader.PERSON if for_person else StatusReader.SCRAPER
                return {"status": await self._status(reader)}
            case GpuEvidenceRequest():
                return await self._gpus()
            case OperationsRequest(most):
                return (await self._operations.operations(most)).fields()
            case RecordedOperationRequest(number):
                return {"operation": await self._operations.operation(number)}
            case LogTailRequest(name, most):
                return {"lines": await self._log.lines(name, most)}
            case TokenOwnerRequest(token):
                return asdict(self._tokens.operator(token))
            case AnyTokenRequest():
                return {"usable": self._tokens.is_any_usable()}
            case ClientRequestsRequest():
                return await self._requests.document()
            case CountersRequest():
                return await self._counters()
            case never:
                assert_never(never)

    async def _engine_metrics(self) -> AsyncGenerator[StatusSocketEvent, None]:
        states: dict[str, str] = {}
        async with aclosing(self._pages.pages()) as pages:
            async for name, page in pages:
                if page is None:
                    states[name] = "absent"
                    continue
                states[name] = "truncated" if page.truncated else "complete"
                for first in range(0, len(page.text), PAGE_CHARACTERS):
                    part = page.text[first : first + PAGE_CHARACTERS]
                    yield EnginePageEvent(profile=name, text=part)
        yield ResultEvent(details={"profiles": states})
