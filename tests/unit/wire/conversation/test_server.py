"""Server of conversations: who may leave when, who is cut off, and what becomes of the answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.model.errors import ApplianceError, BusyError, UnknownProfileError
from appliance.model.record import Record
from appliance.wire.conversation.async_client import open_conversation
from appliance.wire.conversation.codec import (
    MAX_REQUEST_BYTES,
    CommonEvent,
    ErrorEvent,
    RequestRefusedError,
    ResultEvent,
    SocketTable,
)
from appliance.wire.conversation.server import FEW, serve_conversations
from appliance.wire.unix_server import Peer
from tests.waiting import settle, until


class WorkRequest(Record):
    """Request that is carried out whether its client stays or not, unless it says `begun`."""

    names: tuple[str, ...] = ()
    """Words of what the answer does: `tell`, `more`, `begun`, `wait`, `busy`, `unknown`, `flood`."""


class FollowRequest(Record):
    """Request whose answer ends when the client leaves."""

    names: tuple[str, ...] = ()


class ToldEvent(Record):
    """One event."""

    text: str = ""


class BegunEvent(Record):
    """Event from which on the answer ends when the client leaves."""


Request = WorkRequest | FollowRequest
Event = CommonEvent | ToldEvent | BegunEvent
TABLE: SocketTable[Request, Event] = SocketTable(
    name="test socket",
    server="test server",
    unit="test",
    group="tests",
    requests=(("work", "", WorkRequest), ("follow", "", FollowRequest)),
    events={"told": ToldEvent, "begun": BegunEvent},
    until_left=(FollowRequest, BegunEvent),
)


REFUSALS: Mapping[str, ApplianceError] = {
    "busy": BusyError("later"),
    "unknown": UnknownProfileError("who?"),
}


class Worker:
    """Answers with what a request's words say; each answer waits for `go` at the word `wait`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.go = asyncio.Event()
        self.begun = 0
        """Answers that were begun."""
        self.ended: list[str] = []
        """End of each answer: `done`, or the name of the exception."""

    async def answer(self, request: Request, _peer: Peer) -> AsyncGenerator[Event, None]:
        self.begun += 1
        try:
            for word in request.names:
                match word:
                    case "tell" | "more":
                        yield ToldEvent("x")
                    case "begun":
                        yield BegunEvent()
                    case "wait":
                        await self.go.wait()
                    case "busy" | "unknown":
                        raise REFUSALS[word]  # noqa: TRY301 - as an answer does
                    case _:
                        while True:
                            yield ToldEvent("x" * 100_000)
            self.ended.append("done")
            yield ResultEvent(message="done")
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise

    async def ask(self, request: Request) -> Sequence[Event]:
        """Every event of the answer."""
        async with open_conversation(TABLE, self.path, request) as events:
            return [event async for event in events]


@asynccontextmanager
async def served(directory: Path, *, taken_within_s: float = 20.0) -> AsyncIterator[Worker]:
    """A worker on a socket."""
    worker = Worker(directory / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(worker.path))
        listener.listen()
        listener.settimeout(0)
        serving = asyncio.create_task(
            serve_conversations(
                TABLE,
                listener,
                lambda verb, args, _peer: TABLE.decode_request(verb, args),
                worker.answer,
                bounds=FEW,
                taken_within_s=taken_within_s,
            )
        )
        try:
            async with asyncio.timeout(60):
                yield worker
        finally:
            everything = asyncio.all_tasks() - {asyncio.current_task()}
            for task in everything:
                task.cancel()
            await asyncio.gather(serving, *everything, return_exceptions=True)


@pytest.mark.parametrize("kind", [WorkRequest, FollowRequest])
async def test_an_answer_is_its_events(
    tmp_path: Path, kind: type[WorkRequest | FollowRequest]
) -> None:
    """Events come in order up to the closing one, of requests of either kind."""
    async with served(tmp_path) as worker:
        told = await worker.ask(kind(("tell", "begun", "more")))
        assert told == [ToldEvent("x"), BegunEvent(), ToldEvent("x"), ResultEvent(message="done")]


@pytest.mark.parametrize(
    ("word", "closing"),
    [("busy", ErrorEvent("busy", "later")), ("unknown", ErrorEvent("unknown-profile", "who?"))],
)
@pytest.mark.parametrize("before", [(), ("tell",), ("begun",)])
async def test_an_error_closes(
    tmp_path: Path, word: str, closing: ErrorEvent, before: tuple[str, ...]
) -> None:
    """An error of ours is the last event, at once or after others."""
    async with served(tmp_path) as worker:
        assert (await worker.ask(WorkRequest((*before, word))))[-1] == closing
        assert (await worker.ask(FollowRequest((*before, word))))[-1] == closing


@pytest.mark.parametrize(
    "request_", [FollowRequest(("wait",)), WorkRequest(("begun", "wait"))], ids=["asked", "begun"]
)
async def test_who_leaves_ends_what_lasts(tmp_path: Path, request_: Request) -> None:
    """A follower's answer ends with the client, also while it has nothing to tell."""
    async with served(tmp_path) as worker:
        async with open_conversation(TABLE, worker.path, request_) as events:
            await until(lambda: worker.begun)
            if isinstance(request_, WorkRequest):
                assert await anext(events) == BegunEvent()
        await until(lambda: worker.ended)
        assert worker.ended in (["CancelledError"], ["GeneratorExit"])


async def test_what_was_asked_for_is_done_for_nobody(tmp_path: Path) -> None:
    """A client that leaves before anything has begun does not stop it half-way."""
    async with served(tmp_path) as worker:
        async with open_conversation(TABLE, worker.path, WorkRequest(("wait",))):
            await until(lambda: worker.begun)
        await settle(200)  # the server has seen that the client is gone
        worker.go.set()
        await until(lambda: worker.ended)
        assert worker.ended[0] == "done"


@pytest.mark.parametrize("kind", [WorkRequest, FollowRequest])
async def test_who_reads_nothing_is_cut_off(
    tmp_path: Path, kind: type[WorkRequest | FollowRequest]
) -> None:
    """A client that stops reading is not waited for, and its answer ends."""
    async with served(tmp_path, taken_within_s=0.1) as worker:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(worker.path))
            client.sendall(TABLE.encode_request(kind(("flood",))))
            await until(lambda: worker.ended)
            assert worker.ended in (["CancelledError"], ["GeneratorExit"])
            # Others are answered meanwhile.
            assert await worker.ask(kind()) == [ResultEvent(message="done")]


async def test_a_request_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """The refusal names the bound; nothing of the request is carried out."""
    async with served(tmp_path) as worker:
        reader, writer = await asyncio.open_unix_connection(worker.path)
        writer.write(b'"' + b"x" * (2 * MAX_REQUEST_BYTES) + b'"\n')
        with contextlib.suppress(ConnectionError):
            line = await reader.readline()
            assert TABLE.decode_event(line) == ErrorEvent(
                "bad-request", "the request is too long: 65536 bytes are the most"
            )
        writer.close()
        assert worker.begun == 0


async def test_a_full_server_says_which_one_it_is(tmp_path: Path) -> None:
    """One connection too many is told so at once, and the next one finds the place again."""
    async with served(tmp_path) as worker:
        async with contextlib.AsyncExitStack() as others:
            refused = False
            while not refused:
                follower = open_conversation(TABLE, worker.path, FollowRequest(("wait",)))
                try:
                    await others.enter_async_context(follower)
                except RequestRefusedError:
                    refused = True
                assert worker.begun <= FEW.total
            reader, writer = await asyncio.open_unix_connection(worker.path)
            refusal = TABLE.decode_event(await reader.readline())
            assert refusal == ErrorEvent(
                "busy",
                "too many connections to the test server are open: end some, or try again",
            )
            writer.close()
        await until(lambda: len(worker.ended) == worker.begun)
        assert await worker.ask(WorkRequest()) == [ResultEvent(message="done")]
