"""Follower of the supervisor's status, in virtual time and over a real socket."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.model.errors import UnreachableError
from appliance.model.status import StatusDocument
from appliance.wire.control_events import StatusEvent
from appliance.wire.conversation import ErrorEvent, ResultEvent
from appliance.wire.server import Peer, serve_conversations
from appliance.wire.status_socket import (
    STATUS,
    StatusSocketEvent,
    StatusSocketRequest,
    WatchRequest,
)
from appliance.wire.status_stream import SILENT_S, OpenWatch, StatusFollower
from tests.fakes.virtual_time import advance

ONE, TWO = StatusDocument(host="one"), StatusDocument(host="two")
LOST = "supervisor not running: sudo systemctl start appliance-supervisor"

Step = StatusSocketEvent | UnreachableError | float
"""Event, error, or seconds of silence before the next step."""


class Watches:
    """Watches that follow one another: each has its steps, the last one is repeated."""

    def __init__(self, *stories: Sequence[Step]) -> None:
        self.begun_s: list[float] = []
        """Times at which a watch was begun."""
        self.ended = 0
        self._stories = stories

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[AsyncGenerator[StatusSocketEvent, None]]:
        story = self._stories[min(len(self.begun_s), len(self._stories) - 1)]
        self.begun_s.append(asyncio.get_running_loop().time())
        if story and isinstance(story[0], UnreachableError):
            raise story[0]
        try:
            yield self._told(story)
        finally:
            self.ended += 1

    async def _told(self, story: Sequence[Step]) -> AsyncGenerator[StatusSocketEvent, None]:
        for step in story:
            if isinstance(step, UnreachableError):
                raise step
            if isinstance(step, float):
                await advance(step)
            else:
                yield step


async def followed(open_watch: OpenWatch, most: int) -> list[StatusDocument | None]:
    """The first things that a follower yields."""
    documents = StatusFollower(open_watch).documents()
    try:
        return [await anext(documents) for _ in range(most)]
    finally:
        await documents.aclose()


@pytest.mark.virtual_time
async def test_a_lost_connection_is_told_once_and_made_again() -> None:
    """Each document is yielded, each loss once as None, however many attempts fail then."""
    away = UnreachableError(LOST)
    watches = Watches(
        [StatusEvent(ONE), StatusEvent(TWO), away], [away], [away], [StatusEvent(ONE), 1e9]
    )
    assert await followed(watches, 4) == [ONE, TWO, None, ONE]
    assert watches.ended == 2


@pytest.mark.virtual_time
async def test_pauses_grow_to_five_seconds_and_begin_again() -> None:
    """An absent supervisor is asked at most every 5 s; once it has answered, at once again."""
    away = UnreachableError(LOST)
    watches = Watches(*[[away]] * 7, [StatusEvent(ONE), away], [StatusEvent(TWO), 1e9])
    assert await followed(watches, 4) == [None, ONE, None, TWO]
    pauses = [round(b - a, 3) for a, b in zip(watches.begun_s, watches.begun_s[1:], strict=False)]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.2]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("ending", "trouble"),
    [
        ([UnreachableError(LOST)], LOST),
        ([SILENT_S + 1.0, StatusEvent(TWO)], "the supervisor says nothing for 60 s"),
        ([ErrorEvent("failed", "the bus is away")], "the bus is away"),
        ([ResultEvent()], STATUS.not_our_protocol),
    ],
    ids=["gone", "silent", "error", "nonsense"],
)
async def test_the_reason_of_a_loss_is_known(ending: Sequence[Step], trouble: str) -> None:
    """While there is a status there is no trouble; afterwards the reason can be shown."""
    follower = StatusFollower(Watches([StatusEvent(ONE), *ending]))
    assert follower.trouble
    documents = follower.documents()
    assert await anext(documents) == ONE
    assert follower.trouble == ""
    assert await anext(documents) is None
    assert follower.trouble == trouble
    await documents.aclose()


@pytest.mark.virtual_time
async def test_events_of_a_later_release_are_passed_over() -> None:
    """A watch may tell more than documents one day, and silence shorter than the bound is none."""
    watches = Watches([STATUS.decode_event(b'{"event": "weather"}'), 50.0, StatusEvent(ONE), 1e9])
    assert await followed(watches, 1) == [ONE]


async def test_a_follower_outlives_its_server(tmp_path: Path) -> None:
    """Over a real socket: documents, a server that dies, and documents of the next one."""

    async def answer(
        request: StatusSocketRequest, _peer: Peer
    ) -> AsyncGenerator[StatusSocketEvent, None]:
        assert request == WatchRequest()
        yield StatusEvent(ONE)
        yield StatusEvent(TWO)
        await asyncio.Event().wait()

    documents = StatusFollower.on(tmp_path / "socket").documents()
    async with asyncio.timeout(60):
        assert await anext(documents) is None
        for _ in range(2):
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(tmp_path / "socket"))
                listener.listen()
                listener.setblocking(False)  # noqa: FBT003 - the socket module's own
                serving = asyncio.create_task(
                    serve_conversations(
                        STATUS,
                        listener,
                        lambda verb, args, _peer: STATUS.decode_request(verb, args),
                        answer,
                    )
                )
                assert [await anext(documents) for _ in range(2)] == [ONE, TWO]
                everything = asyncio.all_tasks() - {asyncio.current_task()}
                for task in everything:
                    task.cancel()
                await asyncio.gather(serving, *everything, return_exceptions=True)
            (tmp_path / "socket").unlink()
            assert await anext(documents) is None
    await documents.aclose()
