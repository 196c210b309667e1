"""Both faces of the client of the control socket, against the same supervisor."""

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest

from appliance.model.errors import ApplianceError, PermissionDeniedError, UnreachableError
from appliance.wire.async_client import open_conversation
from appliance.wire.client import Conversation
from appliance.wire.control_events import AcceptedEvent, ControlEvent, EndedEvent, PhaseEvent
from appliance.wire.control_requests import CONTROL, StatusRequest
from appliance.wire.conversation import (
    ErrorEvent,
    RequestRefusedError,
    ResultEvent,
    UnknownEvent,
)
from tests.fakes.control_server import HELLO, FakeSupervisor, Hang, HangUp, Story

ACCEPTED = {"event": "accepted", "operation": 12, "kind": "switch", "target": ["a"]}
PHASE = {"event": "phase", "phase": "load", "state": "done"}
ENDED = {
    "event": "result",
    "operation": 12,
    "kind": "switch",
    "target": ["a"],
    "outcome": "done",
    "cause": None,
    "exit": 0,
    "message": "",
}
BUSY = {"event": "error", "error": "busy", "exit": 75, "message": "switch a is running"}

Seen = list[ControlEvent | type[ApplianceError]]
"""The events, and the type of the error after them, if one came."""
Client = Callable[[Path, float], Awaitable[Seen]]
"""Asks on a socket, and waits so many seconds for the greeting."""
LONG_S = 10.0
_TIMES = 100


def _converse(path: Path, greeting_s: float) -> Seen:
    seen: Seen = []
    try:
        with Conversation(
            CONTROL, str(path), StatusRequest(), greeting_s=greeting_s
        ) as conversation:
            seen.extend(conversation.events())
    except ApplianceError as error:
        seen.append(type(error))
    return seen


async def synchronous(path: Path, greeting_s: float) -> Seen:
    """The command line's face."""
    return await asyncio.to_thread(_converse, path, greeting_s)


async def asynchronous(path: Path, greeting_s: float) -> Seen:
    """The face of processes."""
    seen: Seen = []
    try:
        async with open_conversation(
            CONTROL, path, StatusRequest(), greeting_s=greeting_s
        ) as events:
            async for event in events:
                seen.append(event)
    except ApplianceError as error:
        seen.append(type(error))
    return seen


both = pytest.mark.parametrize("client", [synchronous, asynchronous])


@both
@pytest.mark.parametrize(
    ("story", "seen"),
    [
        ([{"event": "result", "exit": 0, "status": {}}], [ResultEvent(details={"status": {}})]),
        (
            [ACCEPTED, PHASE, {"event": "weather"}, ENDED, PHASE],
            [
                AcceptedEvent(12, "switch", ("a",)),
                PhaseEvent("load", "done"),
                UnknownEvent("weather"),
                EndedEvent(12, "switch", ("a",), "done", None, 0, ""),
            ],
        ),
        ([BUSY], [ErrorEvent("busy", "switch a is running")]),
        ([PHASE, HangUp()], [PhaseEvent("load", "done"), UnreachableError]),
        ([{}], [UnreachableError]),
        ([{"event": "phase", "text": "x" * (3 << 20)}], [UnreachableError]),
    ],
    ids=range(6),
)
async def test_events_end_with_the_closing_one_or_an_error(
    tmp_path: Path, client: Client, story: Story, seen: Sequence[object]
) -> None:
    """Both faces give every event up to the closing one, and tell when it does not come."""
    with FakeSupervisor(tmp_path / "socket", {"status": story}) as supervisor:
        assert await client(supervisor.path, LONG_S) == seen


@both
@pytest.mark.parametrize(
    ("greeting", "error"),
    [(None, UnreachableError), (BUSY, RequestRefusedError), (PHASE, UnreachableError)],
    ids=["silence", "refusal", "nonsense"],
)
async def test_without_a_greeting_there_is_no_conversation(
    tmp_path: Path,
    client: Client,
    greeting: Mapping[str, object] | None,
    error: type[ApplianceError],
) -> None:
    """A server that does not greet in time, refuses or says something else is an error."""
    stories: dict[str, Story] = {"status": []}
    with FakeSupervisor(tmp_path / "socket", stories, greeting=greeting) as supervisor:
        assert await client(supervisor.path, 0.1 if greeting is None else LONG_S) == [error]


@both
async def test_without_a_server_there_is_no_conversation(tmp_path: Path, client: Client) -> None:
    """A missing socket is a supervisor that cannot be reached."""
    assert await client(tmp_path / "socket", LONG_S) == [UnreachableError]


@both
@pytest.mark.skipif(os.geteuid() != 0, reason="not root: changing the user is not shown")
async def test_a_socket_that_is_not_for_this_user(tmp_path: Path, client: Client) -> None:
    """A socket that this user may not open is a lack of permission, not of a supervisor."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        path.chmod(0o600)
        os.seteuid(65_534)
        try:
            assert await client(path, LONG_S) == [PermissionDeniedError]
        finally:
            os.seteuid(0)


async def test_the_stream_ends_with_its_block(tmp_path: Path) -> None:
    """To leave the block is to leave the conversation, whatever the server still has to say."""
    with FakeSupervisor(tmp_path / "socket", {"status": [PHASE, Hang()]}, greeting=HELLO) as it:
        async with open_conversation(CONTROL, it.path, StatusRequest()) as events:
            assert await anext(events) == PhaseEvent("load", "done")


@both
async def test_a_refusal_is_heard_whatever_became_of_the_request(
    tmp_path: Path, client: Client
) -> None:
    """A server without room says so and closes, before or after the request is sent."""
    line = json.dumps(BUSY).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()

        def refuse() -> None:
            with contextlib.suppress(OSError):  # the listener is shut down
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(line)

        refusing = asyncio.create_task(asyncio.to_thread(refuse))
        try:
            for _ in range(_TIMES):
                assert await client(tmp_path / "socket", LONG_S) == [RequestRefusedError]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            await refusing


def test_the_fake_supervisor_waits_for_a_client_that_reads_late(tmp_path: Path) -> None:
    """Events beyond what a socket holds are neither left out nor cut."""
    path = tmp_path / "socket"
    large = [{**PHASE, "text": "x" * 20_000} for _ in range(40)]
    with (
        FakeSupervisor(path, {"status": [*large, ENDED]}),
        Conversation(CONTROL, str(path), StatusRequest()) as conversation,
    ):
        time.sleep(0.2)  # real time: longer than the fake waits for room in the socket
        assert [type(event) for event in conversation.events()] == [PhaseEvent] * 40 + [EndedEvent]
