"""Box whose documents and answers are given, for the routes of the web process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from starlette.types import ASGIApp

from appliance.model.errors import ApplianceError, UnreachableError
from appliance.model.status import RecordedOperation
from appliance.web.box_documents import BoxDocuments, Document, EnginePages
from appliance.web.page.view import FocusDocuments
from appliance.wire.alert_requests import ActRequest
from appliance.wire.health_socket import HealthEvent, HealthRequest
from appliance.wire.status_socket import StatusSocketEvent, StatusSocketRequest

NOT_RUNNING = UnreachableError("supervisor not running: sudo systemctl start appliance-supervisor")


@dataclass(slots=True)
class FixedBox:
    """Source of given values, which a test may replace; what is not given is a daemon that is down."""

    documents: BoxDocuments = field(default_factory=lambda: BoxDocuments(unix_s=0.0))
    counted: Document | None = None
    pages: EnginePages | None = None
    answers: dict[type, Document | ApplianceError] = field(default_factory=dict)
    """By the type of the request."""
    agent_events: list[HealthEvent] = field(default_factory=list)
    asked: list[object] = field(default_factory=list)
    told: dict[type, asyncio.Queue[Any]] = field(default_factory=dict)
    """Events of conversations that last, by the type of the request."""
    looks: list[bool] = field(default_factory=list)
    """Looks, and whether each was a person's."""
    gpu_looks: int = 0
    """Looks for which the GPUs had to be read."""
    questions: int = 0
    """Questions that are being asked."""
    most_questions: int = 0
    """Most of them at a time."""
    followers: int = 0
    """Conversations that are open."""

    async def look(self, *, for_person: bool = False, with_gpus: bool = True) -> BoxDocuments:
        """Return the documents."""
        self.looks.append(for_person)
        self.gpu_looks += with_gpus
        return self.documents if with_gpus else replace(self.documents, gpus=None, gpus_age_s=None)

    async def counters(self) -> Document | None:
        """Return the counters that a test has set."""
        return self.counted

    async def engine_pages(self) -> EnginePages | None:
        """Return the pages that a test has set."""
        return self.pages

    async def ask_supervisor(self, request: StatusSocketRequest) -> Document:
        """Return the answer to a request of its type, after others could have been asked."""
        await self._pass()
        return self._answer(request)

    async def ask_agent(self, request: HealthRequest) -> Document:
        """Return the answer to a request of its type."""
        return self._answer(request)

    async def ask_agent_events(self, request: HealthRequest) -> Sequence[HealthEvent]:
        """Return the events, after others could have been asked."""
        await self._pass()
        self.asked.append(request)
        return list(self.agent_events)

    async def _pass(self) -> None:
        self.questions += 1
        self.most_questions = max(self.most_questions, self.questions)
        await asyncio.sleep(0)
        self.questions -= 1

    async def act(self, request: ActRequest) -> str:
        """Return the sentence of the answer."""
        return str(self._answer(request)["message"])

    @asynccontextmanager
    async def follow_supervisor(
        self, request: StatusSocketRequest
    ) -> AsyncIterator[AsyncGenerator[StatusSocketEvent, None]]:
        """Give the events of a queue."""
        async with self._followed(request) as events:
            yield events

    @asynccontextmanager
    async def follow_agent(
        self, request: HealthRequest
    ) -> AsyncIterator[AsyncGenerator[HealthEvent, None]]:
        """Give the events of a queue."""
        async with self._followed(request) as events:
            yield events

    @asynccontextmanager
    async def _followed(self, request: object) -> AsyncIterator[AsyncGenerator[Any, None]]:
        if type(request) not in self.told:
            raise NOT_RUNNING
        self.followers += 1
        try:
            yield _events(self.told[type(request)])
        finally:
            self.followers -= 1

    def _answer(self, request: object) -> Document:
        self.asked.append(request)
        answer = self.answers.get(type(request), NOT_RUNNING)
        if isinstance(answer, ApplianceError):
            raise answer
        return answer


async def _events(queue: asyncio.Queue[Any]) -> AsyncGenerator[Any, None]:
    while True:
        event = await queue.get()
        if isinstance(event, ApplianceError):
            raise event
        yield event


def browse(application: ASGIApp, host: str = "127.0.0.1:8011") -> httpx.AsyncClient:
    """Return a client of an application in this process, on the same machine, that asks for a host."""
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    return httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1:8011", headers={"host": host}
    )


@dataclass(slots=True)
class FixedFocus:
    """Source of what is known of one profile; counts the looks, and for how many a log was asked."""

    documents: FocusDocuments | None = None
    """Documents of every profile, apart from its name; None: nothing is known."""
    looks: list[tuple[str, bool]] = field(default_factory=list)
    recorded: Document | None = None
    """Record of the profiles' states; None: not known."""
    listed: Document | None = None
    """Requests of clients; None: not known."""

    async def operations(self) -> tuple[RecordedOperation, ...]:
        """Return none."""
        return ()

    async def states(self) -> Document | None:
        """Return the record that a test has set."""
        return self.recorded

    async def requests(self) -> Document | None:
        """Return the list that a test has set."""
        return self.listed

    async def look_at(self, name: str, *, with_log: bool) -> FocusDocuments:
        """Return it, under the name that was asked for."""
        self.looks.append((name, with_log))
        known = self.documents or FocusDocuments(name=name, since_unix_s=0.0)
        return replace(known, name=name, log=known.log if with_log else None)
