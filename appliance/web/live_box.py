"""Box as the daemons describe it now: each is asked at most once a second, whoever looks, and once for people.

======================  ==============================================================
the last answer is      a look
======================  ==============================================================
younger than `FRESH_S`  has it; a person's, if it was a person's too
older                   waits for a new one; looks meanwhile wait for the same one
a failure               has the last answer with its age, and asks again after `FRESH_S`
======================  ==============================================================
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from appliance.model.errors import ApplianceError, UnreachableError
from appliance.model.status import StatusDocument
from appliance.web.box_documents import BoxDocuments, Document, EnginePages
from appliance.wire.alert_requests import ActRequest
from appliance.wire.async_client import details_of, open_conversation
from appliance.wire.control_events import status_in
from appliance.wire.conversation import ErrorEvent, RequestRefusedError, ResultEvent
from appliance.wire.health_socket import HealthEvent, HealthRequest, SpeedsRequest
from appliance.wire.json_values import Json, object_in, text_in
from appliance.wire.status_socket import (
    STATUS,
    CountersRequest,
    DocumentRequest,
    EngineMetricsRequest,
    EnginePageEvent,
    GpuEvidenceRequest,
    StatusSocketEvent,
    StatusSocketRequest,
)
from appliance.wire.view_socket import VIEW

_log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

FRESH_S: Final = 1.0
PAGES_WITHIN_S: Final = 9.0
"""Time for the engines' pages: a collector usually waits for ten seconds."""
MOST_PAGES_CHARACTERS: Final = 8 << 20
"""Most characters of all engines' pages together: a page of vLLM has 100 to 300 thousand."""
WITHIN_S: Final = 3.0
"""Time for a daemon's answer; one that hangs makes a look so much longer."""


class LastAnswer(Generic[AnswerT]):
    """Last answer of a daemon to one question.

    Args:
        ask: Asks. Raises `ApplianceError`.
        fresh_s: Age up to which an answer is not asked for again.
        now_s: Monotonic clock.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[AnswerT]],
        *,
        fresh_s: float = FRESH_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._fresh_s = fresh_s
        self._now_s = now_s
        self._turn = asyncio.Lock()
        self._asked_s = float("-inf")
        self._answered_s = float("-inf")
        self._answer: AnswerT | None = None
        self._last_ask: Callable[[], Awaitable[AnswerT]] | None = None
        """Way in which was asked last; None: the usual one."""

    async def get(
        self, ask: Callable[[], Awaitable[AnswerT]] | None = None
    ) -> tuple[AnswerT | None, float | None]:
        """Return the answer and its age; None: there never was one.

        Args:
            ask: Asks for the same in a way that does more than the usual one, whose fresh answer is then
                not enough; None: the usual way.
        """
        async with self._turn:
            is_fresh = self._now_s() - self._asked_s < self._fresh_s
            if not is_fresh or ask not in {None, self._last_ask}:
                self._last_ask = ask
                await self._renew(ask or self._ask)
        if self._answer is None:
            return None, None
        return self._answer, max(0.0, self._now_s() - self._answered_s)

    async def _renew(self, ask: Callable[[], Awaitable[AnswerT]]) -> None:
        asked_s = self._now_s()
        try:
            self._answer = await ask()
            self._answered_s = asked_s
        except ApplianceError as error:
            _log.debug("%s", error)
        finally:
            self._asked_s = self._now_s()


async def _unasked() -> tuple[None, None]:
    """Return what `LastAnswer.get` does where there never was an answer."""
    return None, None


class LiveBox:
    """Box as supervisor and health agent describe it.

    Args:
        status_socket: The supervisor's.
        view_socket: The health agent's.
    """

    def __init__(self, status_socket: Path, view_socket: Path) -> None:
        self._status_socket = status_socket
        self._view_socket = view_socket
        self._status = LastAnswer(partial(_status, status_socket, DocumentRequest()))
        self._status_for_person = partial(_status, status_socket, DocumentRequest(for_person=True))
        self._gpus = LastAnswer(
            lambda: details_of(STATUS, status_socket, GpuEvidenceRequest(), within_s=WITHIN_S)
        )
        self._counters = LastAnswer(
            lambda: details_of(STATUS, status_socket, CountersRequest(), within_s=WITHIN_S)
        )
        self._pages_turn = asyncio.Lock()
        self._speeds = LastAnswer(
            lambda: details_of(VIEW, view_socket, SpeedsRequest(), within_s=WITHIN_S)
        )

    async def look(self, *, for_person: bool = False, with_gpus: bool = True) -> BoxDocuments:
        """Return the documents of now."""
        ask = self._status_for_person if for_person else None
        (status, status_age_s), (speeds, speeds_age_s), (gpus, gpus_age_s) = await asyncio.gather(
            self._status.get(ask),
            self._speeds.get(),
            self._gpus.get() if with_gpus else _unasked(),
        )
        return BoxDocuments(
            unix_s=time.time(),
            status=status,
            status_age_s=status_age_s,
            speeds=speeds,
            speeds_age_s=speeds_age_s,
            gpus=gpus,
            gpus_age_s=gpus_age_s,
        )

    async def ask_supervisor(self, request: StatusSocketRequest) -> Document:
        """Return the supervisor's answer. Raises `ApplianceError`."""
        return await details_of(STATUS, self._status_socket, request, within_s=WITHIN_S)

    async def ask_agent(self, request: HealthRequest) -> Document:
        """Return the health agent's answer. Raises `ApplianceError`."""
        return await details_of(VIEW, self._view_socket, request, within_s=WITHIN_S)

    async def ask_agent_events(self, request: HealthRequest) -> Sequence[HealthEvent]:
        """Return the events of the health agent's answer. Raises `ApplianceError`."""
        found: list[HealthEvent] = []
        try:
            async with asyncio.timeout(WITHIN_S), self.follow_agent(request) as events:
                async for event in events:
                    if isinstance(event, ErrorEvent):
                        raise RequestRefusedError(event)
                    if not isinstance(event, ResultEvent):
                        found.append(event)
        except TimeoutError as error:
            raise UnreachableError("the health agent does not answer in time") from error
        return found

    async def act(self, request: ActRequest) -> str:
        """Have the health agent do what a button is for. Raises `ApplianceError`."""
        async with asyncio.timeout(WITHIN_S), self.follow_agent(request) as events:
            async for event in events:
                if isinstance(event, ErrorEvent):
                    raise RequestRefusedError(event)
                if isinstance(event, ResultEvent):
                    return event.message
        raise UnreachableError(VIEW.not_running)

    def follow_supervisor(
        self, request: StatusSocketRequest
    ) -> AbstractAsyncContextManager[AsyncGenerator[StatusSocketEvent, None]]:
        """Begin a conversation on the status socket."""
        return open_conversation(STATUS, self._status_socket, request)

    def follow_agent(
        self, request: HealthRequest
    ) -> AbstractAsyncContextManager[AsyncGenerator[HealthEvent, None]]:
        """Begin a conversation on the view socket."""
        return open_conversation(VIEW, self._view_socket, request)

    async def counters(self) -> Json | None:
        """Return the counters of now; None: the supervisor does not answer."""
        counters, age_s = await self._counters.get()
        return counters if age_s is not None and age_s < 2 * FRESH_S else None

    async def engine_pages(self) -> EnginePages | None:
        """Return the engines' pages of now, for one caller after the other: they take megabytes."""
        try:
            async with asyncio.timeout(PAGES_WITHIN_S), self._pages_turn:
                return await _engine_pages(self._status_socket)
        except (ApplianceError, TimeoutError) as error:
            _log.debug("%s", error)
            return None


async def _engine_pages(path: Path) -> EnginePages:
    texts: dict[str, list[str]] = {}
    states: dict[str, str] = {}
    room = MOST_PAGES_CHARACTERS
    async with open_conversation(STATUS, path, EngineMetricsRequest()) as events:
        async for event in events:
            if isinstance(event, EnginePageEvent):
                room -= len(event.text)
                if room < 0:
                    states[event.profile] = "left-out"
                    texts.pop(event.profile, None)
                else:
                    texts.setdefault(event.profile, []).append(event.text)
            elif isinstance(event, ResultEvent):
                told = object_in(event.details, "profiles")
                states = {name: text_in(told, name) for name in told} | states
    return EnginePages(
        states=states,
        texts={n: "".join(parts) for n, parts in texts.items() if states.get(n) != "left-out"},
    )


async def _status(path: Path, request: DocumentRequest) -> StatusDocument:
    return status_in(await details_of(STATUS, path, request, within_s=WITHIN_S))
