"""Documents about one profile, as health agent and supervisor have them now.

Each is asked for at most once in its time, whoever looks; a few profiles are remembered.
"""

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.model.errors import UnreachableError
from appliance.model.measurements import Probe
from appliance.model.status import RecordedOperation
from appliance.web.live_box import FRESH_S, WITHIN_S, LastAnswer
from appliance.web.page.view import FocusDocuments
from appliance.wire.async_client import details_of, open_conversation
from appliance.wire.control_events import OperationsRequest, operations_in
from appliance.wire.conversation import ErrorEvent, RequestRefusedError
from appliance.wire.health_socket import (
    HistoryRequest,
    MeasurementsRequest,
    StateRecordRequest,
    StoredProbeEvent,
)
from appliance.wire.json_values import Json, texts_in
from appliance.wire.status_socket import STATUS, ClientRequestsRequest, LogTailRequest
from appliance.wire.view_socket import VIEW

HISTORY_S: Final = 7 * 86_400.0
_SPAN_S: Final = 3600.0
_HISTORY_FRESH_S: Final = 30.0
_PROBES_FRESH_S: Final = 10.0
_OPERATIONS_FRESH_S: Final = 5.0
_STATES_FRESH_S: Final = 10.0
_MOST_OPERATIONS: Final = 100
_LOG_FRESH_S: Final = 2.0
_MOST_PROBES: Final = 12
_LOG_LINES: Final = 100
_MOST_NAMES: Final = 8
"""Profiles whose answers are remembered, those that were looked at last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FocusAnswers:
    history: LastAnswer[tuple[float, Json]]
    probes: LastAnswer[tuple[Probe, ...]]
    log: LastAnswer[tuple[str, ...]]


class LiveFocus:
    """Source of the documents about one profile.

    Args:
        status_socket: The supervisor's.
        view_socket: The health agent's.
    """

    def __init__(self, status_socket: Path, view_socket: Path) -> None:
        self._status_socket = status_socket
        self._view_socket = view_socket
        self._states = LastAnswer(
            lambda: details_of(VIEW, view_socket, StateRecordRequest(), within_s=WITHIN_S),
            fresh_s=_STATES_FRESH_S,
        )
        self._requests = LastAnswer(
            lambda: details_of(STATUS, status_socket, ClientRequestsRequest(), within_s=WITHIN_S)
        )
        self._ended = LastAnswer(self._operations, fresh_s=_OPERATIONS_FRESH_S)
        self._known: OrderedDict[str, _FocusAnswers] = OrderedDict()

    async def operations(self) -> tuple[RecordedOperation, ...]:
        """Return the operations that ended lately."""
        return (await self._ended.get())[0] or ()

    async def states(self) -> Json | None:
        """Return the record of the profiles' states."""
        return (await self._states.get())[0]

    async def requests(self) -> Json | None:
        """Return the requests of clients in flight and held, of now."""
        found, age_s = await self._requests.get()
        return found if age_s is not None and age_s < 2 * FRESH_S else None

    async def look_at(self, name: str, *, with_log: bool) -> FocusDocuments:
        """Return the documents of a profile."""
        answers = self._answers(name)
        (history, _), (probes, _) = await asyncio.gather(
            answers.history.get(), answers.probes.get()
        )
        log = (await answers.log.get())[0] if with_log else None
        since_unix_s, rates = history or (0.0, None)
        return FocusDocuments(
            name=name, since_unix_s=since_unix_s, history=rates, probes=probes, log=log
        )

    def _answers(self, name: str) -> _FocusAnswers:
        known = self._known.pop(name, None)
        if known is None:
            known = _FocusAnswers(
                history=LastAnswer(lambda: self._history(name), fresh_s=_HISTORY_FRESH_S),
                probes=LastAnswer(lambda: self._probes(name), fresh_s=_PROBES_FRESH_S),
                log=LastAnswer(lambda: self._log(name), fresh_s=_LOG_FRESH_S),
            )
        self._known[name] = known
        if len(self._known) > _MOST_NAMES:
            self._known.popitem(last=False)
        return known

    async def _history(self, name: str) -> tuple[float, Json]:
        since_unix_s = max(0.0, time.time() - HISTORY_S)
        request = HistoryRequest(name, since_unix_s, None, _SPAN_S)
        return since_unix_s, await details_of(VIEW, self._view_socket, request, within_s=WITHIN_S)

    async def _probes(self, name: str) -> tuple[Probe, ...]:
        request = MeasurementsRequest(name, max(0.0, time.time() - HISTORY_S), _MOST_PROBES)
        found = list[Probe]()
        try:
            async with (
                asyncio.timeout(WITHIN_S),
                open_conversation(VIEW, self._view_socket, request) as events,
            ):
                async for event in events:
                    if isinstance(event, ErrorEvent):
                        raise RequestRefusedError(event)
                    if isinstance(event, StoredProbeEvent):
                        found.append(event.read())
        except TimeoutError as error:
            raise UnreachableError("the health agent does not answer in time") from error
        return tuple(reversed(found))

    async def _operations(self) -> tuple[RecordedOperation, ...]:
        request = OperationsRequest(_MOST_OPERATIONS)
        details = await details_of(STATUS, self._status_socket, request, within_s=WITHIN_S)
        return tuple(operations_in(details).operations)

    async def _log(self, name: str) -> tuple[str, ...]:
        request = LogTailRequest(name, _LOG_LINES)
        details = await details_of(STATUS, self._status_socket, request, within_s=WITHIN_S)
        return tuple(texts_in(details, "lines"))
