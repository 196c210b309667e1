"""Requests of the gateway to the supervisor: a switch, and nothing else."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.domain.errors import PermissionDeniedError, UnreachableError
from appliance.domain.operations import Outcome
from appliance.protocol.control import GREETING_S, ErrorKind
from appliance.protocol.control_events import (
    AcceptedEvent,
    ClosingEvent,
    EndedEvent,
    ErrorEvent,
    RequestRefusedError,
)
from appliance.protocol.control_requests import OnRequestSwitch
from appliance.protocol.control_stream import control_events

_NO_REASON: Final = "no reason given"


@dataclass(frozen=True, slots=True)
class Done:
    """The profile serves, or will be seen to: the supervisor left during the operation."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Another operation runs, or people hold the box."""


@dataclass(frozen=True, slots=True)
class Away:
    """The supervisor does not answer."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The profile does not serve."""

    why: str


Answer = Done | Busy | Away | Failed


async def ask_for_switch(socket: Path, name: str, on_behalf: str) -> Answer:
    """Have the box switched to a profile; returns when the operation is over.

    Only the beginning has a deadline: a load may take an hour.

    Args:
        socket: The supervisor's.
        name: The profile.
        on_behalf: Who wants it; the supervisor records it beside the gateway's own user.
    """
    accepted = False
    try:
        async with (
            control_events(socket, OnRequestSwitch(name, on_behalf)) as events,
            asyncio.timeout(GREETING_S) as deadline,
        ):
            async for event in events:
                if isinstance(event, AcceptedEvent):
                    accepted = True
                    deadline.reschedule(None)
                elif isinstance(event, ClosingEvent):
                    return _answer(event)
    except RequestRefusedError as error:
        return _refused(error.kind, str(error))
    except (UnreachableError, PermissionDeniedError, TimeoutError):
        pass
    return Done() if accepted else Away()


def _answer(event: ClosingEvent) -> Answer:
    if isinstance(event, ErrorEvent):
        return _refused(event.kind, event.message)
    if isinstance(event, EndedEvent) and event.outcome == Outcome.DONE:
        return Done()
    return Failed(event.message or _NO_REASON)


def _refused(kind: ErrorKind, message: str) -> Answer:
    return Busy() if kind is ErrorKind.BUSY else Failed(message or _NO_REASON)
