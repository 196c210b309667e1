"""Limits of the clients of a unix socket: places, time, memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.model.errors import ApplianceError, BusyError, UnknownProfileError
from appliance.model.record import Record
from appliance.wire.async_client import open_conversation
from appliance.wire.conversation import (
    MAX_REQUEST_BYTES,
    CommonEvent,
    ErrorEvent,
    RequestRefusedError,
    ResultEvent,
    SocketTable,
)
from appliance.wire.server import (
    ASSURED,
    FEW,
    Bounds,
    ConnectionQuota,
    Converse,
    Peer,
    peer_of,
    serve_conversations,
    serve_unix,
    until_left,
)
from tests.waiting import settle, until

REFUSAL = b"full\n"
BOUNDS = Bounds(line_bytes=1024, per_user=2, total=4)
PLACES = 4 if os.geteuid() == 0 else 2
"""Root has all of them."""


@asynccontextmanager
async def listening(path: Path, converse: Converse) -> AsyncIterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        serving = asyncio.create_task(serve_unix(listener, converse, BOUNDS, refusal=REFUSAL))
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ValueError):
        writer.write(await reader.readline())


async def ask(path: Path, line: bytes = b"hello\n") -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    try:
        return await reader.read()
    except ConnectionError:  # it was sent away with the line unread
        return REFUSAL
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_more_connections_than_places_are_told_so(tmp_path: Path) -> None:
    """A client that finds no place is told so at once, and is served once a place is free."""
    path = tmp_path / "socket"
    async with listening(path, echo):
        crowd = [await asyncio.open_unix_connection(path) for _ in range(PLACES)]
        reader, late = await asyncio.open_unix_connection(path)
        assert await reader.read() == REFUSAL
        late.close()
        for _, writer in crowd:
            writer.close()
        while await ask(path) == REFUSAL:
            await asyncio.sleep(0)
        assert await ask(path) == b"hello\n"


async def test_a_line_without_an_end_is_bounded(tmp_path: Path) -> None:
    """The server takes twice the longest line and what one read brings, and no more."""
    path, seen, over = tmp_path / "socket", asyncio.Event(), asyncio.Event()

    async def wait(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        seen.set()
        await over.wait()

    async with listening(path, wait):
        with socket.socket(socket.AF_UNIX) as flood:
            flood.connect(str(path))
            flood.setblocking(False)  # noqa: FBT003
            await seen.wait()
            sent = 0
            for _ in range(200):
                with contextlib.suppress(BlockingIOError):
                    sent += flood.send(b"x" * 65536)
                await asyncio.sleep(0)
            assert sent < 2 << 20
        over.set()


async def test_a_client_that_left_is_noticed(tmp_path: Path) -> None:
    """Also while nothing is sent to it; one that only sends no more is still there."""
    path, left = tmp_path / "socket", asyncio.Event()

    async def follow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert peer_of(writer)[1] == os.geteuid()
        await until_left(reader, writer)
        left.set()

    async with listening(path, follow):
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(path))
        client.sendall(b"more than was asked for")
        client.shutdown(socket.SHUT_WR)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await left.wait()
        client.close()
        await left.wait()


# --- shares of the places -----------------------------------------------------------

ROOT, ANA, BOB = 0, 1000, 1001


def taken(quota: ConnectionQuota, uid: int) -> int:
    """Connections that a user gets who asks without an end."""
    count = 0
    while count < 1000 and quota.admit(uid):
        count += 1
    return count


def test_a_user_has_a_cap_and_a_place_comes_back() -> None:
    """Connections beyond `per_user` are refused until one of that user's connections has ended."""
    quota = ConnectionQuota(per_user=64, total=256)
    assert taken(quota, ANA) == 64
    assert quota.leave(ANA) == 63
    assert quota.admit(ANA)
    assert not quota.admit(ANA)


def test_a_newcomer_is_served_beside_many_greedy_users() -> None:
    """However many users take all they can get, others have a few connections each, and so has root."""
    quota = ConnectionQuota(per_user=64, total=256)
    greedy = [taken(quota, uid) for uid in range(2000, 2010)]
    assert greedy[:3] == [64, 64, 32]
    assert set(greedy[3:]) == {ASSURED}
    assert quota.admit(BOB)
    assert taken(quota, ROOT) >= 32


def test_root_takes_every_place_and_gives_it_back() -> None:
    """Root may take every place, and the places that root leaves are free for every user."""
    quota = ConnectionQuota(per_user=2, total=16)
    assert taken(quota, ROOT) == 16
    assert not quota.admit(ANA)
    for left in range(15, -1, -1):
        assert quota.leave(ROOT) == left
    assert taken(quota, ANA) == 2


async def test_a_server_without_clients_ends(tmp_path: Path) -> None:
    """The server returns once no client has come for its time, not while one is connected."""
    path, go = tmp_path / "socket", asyncio.Event()

    async def wait(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(b"done\n")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        serving = asyncio.create_task(
            serve_unix(listener.dup(), wait, BOUNDS, refusal=REFUSAL, idle_s=0.05)
        )
        await asyncio.sleep(0)
        asked = asyncio.create_task(ask(path))
        await asyncio.sleep(0.2)  # real time: four times what it waits for clients
        assert not serving.done()
        go.set()
        assert await asked == b"done\n"
        async with asyncio.timeout(30):
            await serving
        # The socket is still there, and a client waits for whoever serves it next.
        reader, writer = await asyncio.open_unix_connection(path)
        writer.close()
        await reader.read()


async def test_no_client_is_lost_when_a_server_ends(tmp_path: Path) -> None:
    """A client that comes in the moment of the end is answered by this server or by the next one."""
    path = tmp_path / "socket"

    async def serve_again() -> None:
        while True:
            async with asyncio.timeout(30):
                await serve_unix(listener.dup(), echo, BOUNDS, refusal=REFUSAL, idle_s=1e-9)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        servers = asyncio.create_task(serve_again())
        for turn in range(200):
            await settle(turn % 40)
            async with asyncio.timeout(30):
                assert await ask(path) == b"hello\n"
        servers.cancel()
        await asyncio.gather(servers, return_exceptions=True)


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
