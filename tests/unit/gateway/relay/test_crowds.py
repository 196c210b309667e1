"""One client that takes all resources does not shut out the others."""

import asyncio
import socket
import time
from dataclasses import replace
from functools import partial

import pytest

from appliance.gateway.request_body import BODY_TURN_BYTES
from appliance.model.gateway import Limits, Standing
from tests.fakes.engine_server import Talk, answering, chunk, sized
from tests.unit.gateway.relay.rig import QUICK, get, post, rigged
from tests.waiting import settle, until

CROWDED = replace(QUICK, connections=4, head_s=5.0, body_s=5.0)
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
KEY = "Authorization: Bearer right\r\n"


async def never(talk: Talk) -> None:
    """Engine that takes requests and does not respond."""
    await talk.request()
    await talk.reader.read()


@pytest.mark.parametrize("said", [b"", b"GET /", HEAD + b"1", get("/health")])
async def test_newcomers_when_every_connection_is_taken(said: bytes) -> None:
    """Idle and slow connections make room for a newcomer, the oldest of them first."""
    async with rigged(answering(sized(b"{}")), limits=CROWDED) as rig:
        crowd = [await rig.connect() for _ in range(4)]
        for one in crowd:
            await one.send(said)
            if said.endswith(b"\r\n\r\n"):
                assert (await one.answer()).status == 200
        await until(lambda: len(rig.relay._clients) == 4)
        for _ in range(3):
            assert (await rig.ask(post())).status == 200
        assert len(rig.relay._clients) <= 4
        async with asyncio.timeout(5):
            await crowd[0].reader.read()
        assert rig.relay.buffered_bytes <= 4


async def test_a_long_body_leaves_turns_to_others() -> None:
    """However fast a body comes, a turn of the event loop reads a part of it: others are read between."""
    body = bytes(8 << 20)
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with rigged(answering(sized(b"{}")), limits=Limits()) as rig:
        with socket.create_connection(("127.0.0.1", rig.port)) as client:
            sending = asyncio.get_running_loop().run_in_executor(None, client.sendall, head + body)
            parts, before = [], 0
            while not sending.done() or rig.relay.buffered_bytes > before:
                before = rig.relay.buffered_bytes
                time.sleep(0.005)  # noqa: ASYNC251  # real time: buffers fill
                await asyncio.sleep(0)
                parts.append(rig.relay.buffered_bytes - before)
            await sending
    assert sum(part > 0 for part in parts) > 1
    # The coroutine sees two turns at once at times; libuv alone reads 2 MiB in each.
    assert max(parts) <= 3 * BODY_TURN_BYTES


async def test_newcomers_when_everybody_waits_for_an_answer() -> None:
    """An owner's newcomer does not cut its own requests; another owner's cuts the newest."""
    async with rigged(never, limits=CROWDED) as rig:
        crowd = [await rig.connect() for _ in range(4)]
        for one in crowd:
            await one.send(post())
        await until(lambda: rig.relay.in_flight(["genesis"]) == 4)
        newcomer = await rig.connect()
        assert (await newcomer.answer()).error["code"] == "too_many_connections"
    async with rigged(never, limits=CROWDED) as rig:
        crowd = [await rig.connect() for _ in range(4)]
        for one in crowd:
            await one.send(post(headers=KEY))
        await until(lambda: rig.relay.in_flight(["genesis"]) == 4)
        newcomer = await rig.connect()
        await newcomer.send(post())
        answer = await crowd[-1].answer()
        assert (answer.status, answer.error["code"]) == (503, "too_many_connections")
        await until(lambda: rig.relay.in_flight(["genesis"]) == 4)


async def test_refused_newcomers_are_not_kept() -> None:
    """Connections that are being refused do not exceed the limit either."""
    async with rigged(never, limits=replace(CROWDED, connections=16)) as rig:
        crowd = [await rig.connect() for _ in range(16)]
        for one in crowd:
            await one.send(post())
        await until(lambda: rig.relay.in_flight(["genesis"]) == 16)
        newcomers = [await rig.connect() for _ in range(30)]
        for one in newcomers:
            await one.send(b"")
        assert len(rig.relay._clients) <= 18
        assert rig.relay.in_flight(["genesis"]) == 16


async def test_large_requests_when_bodies_are_held_back() -> None:
    """A body that has stood still makes room for one that comes."""
    limits = replace(CROWDED, body_bytes=5000, buffered_bytes=12_000)
    async with rigged(answering(sized(b"{}")), limits=limits) as rig:
        first, second = await rig.connect(), await rig.connect()
        for one in (first, second):
            await one.send(HEAD.replace(b"4000", b"4900") + bytes(4800))
        answer = await rig.ask(post({"model": "genesis", "prompt": "x" * 4900}))
        assert answer.status == 200
        told = await first.answer()
        assert (told.status, told.error["code"]) == (503, "busy")
        await second.send(bytes(100))
        assert (await second.answer()).status == 200
        assert rig.relay.buffered_bytes == 0


async def test_bodies_that_the_engine_has_not_taken() -> None:
    """A request in exchange does not make room for the same owner's next request."""
    limits = replace(CROWDED, body_bytes=5000, buffered_bytes=8000)
    large = post({"model": "genesis", "prompt": "x" * 4900})
    async with rigged(never, limits=limits) as rig:
        first = await rig.connect()
        await first.send(large)
        await until(lambda: rig.relay.in_flight(["genesis"]) == 1)
        refused = await rig.ask(large)
        assert (refused.status, refused.error["code"]) == (503, "busy")
        assert rig.relay.in_flight(["genesis"]) == 1
        other = await rig.connect()
        await other.send(large.replace(b"Host: box\r\n", b"Host: box\r\n" + KEY.encode()))
        assert (await first.answer()).error["code"] == "busy"
    assert rig.relay.buffered_bytes == 0


async def test_pipelined_requests_are_counted() -> None:
    """Bytes that come ahead of their turn count as buffered bytes."""
    async with rigged(never, limits=replace(CROWDED, buffered_bytes=50_000)) as rig:
        caller = await rig.connect()
        await caller.send(post() + get("/health") * 100)
        await caller.send(get("/health") * 100)
        await until(lambda: rig.relay.buffered_bytes >= 200 * len(get("/health")))
        await caller.send(bytes(60_000))
        assert (await caller.answer()).error["code"] == "busy"
        assert await caller.ended()
        await until(lambda: not (rig.relay.buffered_bytes or rig.relay.in_flight(["genesis"])))


async def test_bodies_below_the_least_rate() -> None:
    """A body that makes progress, but too little, is refused; one at the least rate is not."""
    limits = replace(QUICK, body_s=0.2, body_rate=2000)
    async with rigged(answering(sized(b"{}")), limits=limits) as rig:
        slow, steady = await rig.connect(), await rig.connect()
        for one in (slow, steady):
            await one.send(HEAD + bytes(400))
        for _ in range(12):
            await slow.send(b"1")
            await steady.send(bytes(300))
            await asyncio.sleep(0.05)  # real time: the rate of a client
        told = await slow.answer()
        assert (told.status, told.error["code"]) == (408, "too_slow")
        assert (await steady.answer()).status == 200


async def test_bodies_that_do_not_end() -> None:
    """A body has a deadline, at whatever rate it comes."""
    limits = replace(QUICK, body_s=0.1, body_rate=1, whole_body_s=0.5)
    async with rigged(answering(), limits=limits) as rig:
        caller = await rig.connect()
        await caller.send(CHUNKED)
        answer = asyncio.ensure_future(caller.answer())
        while not answer.done():
            caller.writer.write(chunk(bytes(500)))
            await asyncio.sleep(0.02)  # real time: the rate of a client
        assert (await answer).error["code"] == "too_slow"


async def test_chunks_that_are_mostly_framing() -> None:
    """Bodies in chunks of a byte are refused before they have cost much; others come through."""
    async with rigged(answering(sized(b"{}"))) as rig:
        caller = await rig.connect()
        await caller.send(CHUNKED + chunk(b"1") * 20_000)
        answer = await caller.answer()
        assert (answer.status, "too small" in str(answer.error["message"])) == (400, True)
        caller = await rig.connect()
        await caller.send(CHUNKED + chunk(bytes(30)) * 20_000 + b"0\r\n\r\n")
        assert (await caller.answer()).status == 200


async def test_heads_of_very_many_lines() -> None:
    """The lines of a head are counted before it is parsed."""
    async with rigged(answering()) as rig:
        answer = await rig.ask(get("/", headers="a:b\r\n" * 5000))
        assert (answer.status, answer.error["code"]) == (431, "head_too_large")


async def test_the_queue_when_one_owner_fills_it() -> None:
    """The newest request of the owner with the most makes room for another owner's."""
    async with rigged(answering(sized(b"{}")), limits=replace(QUICK, queue=3)) as rig:
        rig.tell(Standing.STARTING)
        crowd = [await rig.connect() for _ in range(3)]
        for one in crowd:
            await one.send(post(headers=KEY))
        await until(lambda: len(rig.relay.hold_queue) == 3)
        newcomer = await rig.connect()
        await newcomer.send(post())
        assert (await crowd[-1].answer()).error["code"] == "queue_full"
        rig.tell(Standing.SERVING)
        for one in (*crowd[:2], newcomer):
            assert (await one.answer()).status == 200


async def test_others_are_served_while_a_long_body_is_read() -> None:
    """A body of nothing but numbers takes hundreds of turns of the event loop, not one."""
    numbers = b'{"model":"genesis","prompt":[' + b"1," * (4 << 20) + b"1]}"
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(numbers)}\r\n\r\n"
    limits = replace(QUICK, body_s=10.0)
    async with rigged(answering(sized(b"{}")), limits=limits) as rig:
        long, short = await rig.connect(), await rig.connect()
        long.writer.write(head.encode() + numbers)
        answer = asyncio.ensure_future(long.answer())
        await until(lambda: rig.relay.scans.busy)
        served = 0
        while not answer.done():
            short.writer.write(post())
            assert (await short.answer()).status == 200
            served += 1
        assert served > 2
        assert (await answer).status == 200
        assert numbers in [heard.body for heard in rig.engine.heard]


async def test_clients_that_leave_while_their_body_is_read() -> None:
    """A scan ends when its client hangs up, and the engine gets nothing."""
    body = b'{"model":"genesis","prompt":[' + b"[]," * 200_000 + b"1]}"
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    async with rigged(answering(sized(b"{}"))) as rig:
        caller = await rig.connect()
        caller.writer.write(head.encode() + body)
        await until(lambda: rig.relay.scans.busy)
        await caller.close()
        await until(lambda: not rig.relay.scans.busy)
        assert rig.engine.talks == []
        assert rig.relay.buffered_bytes == 0


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"genesis","x":' + b" " * 20_000 + b"!}",
        b" " * 20_000 + b'{"model":"genesis","stream":1,"stream":2}',
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/elsewhere"])
async def test_long_bodies_that_cannot_be_read(path: str, body: bytes) -> None:
    """Long bodies are refused as short ones are, whatever comes before their brace."""
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    async with rigged(answering()) as rig:
        answer = await rig.ask(head.encode() + body)
        assert (answer.status, answer.error["code"]) == (400, "bad_request")


async def test_long_bodies_that_are_no_json() -> None:
    """Long bodies on other paths that are no JSON go through unchanged; so do long forms."""
    head = "POST /elsewhere HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{}\r\n"
    form = (
        b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\ngenesis\r\n--x\r\n'
        b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n%b\r\n--x--\r\n'
    ) % bytes(40_000)
    multipart = "Content-Type: multipart/form-data; boundary=x\r\n"
    async with rigged(answering(sized(b"{}"))) as rig:
        for kind, body in (("", bytes(40_000)), (multipart, form)):
            answer = await rig.ask(head.format(len(body), kind).encode() + body)
            assert answer.status == 200
        assert [heard.body for heard in rig.engine.heard] == [bytes(40_000), form]


async def test_requests_ahead_of_their_turn_are_few_in_each_turn() -> None:
    """However many clients have sent requests ahead, other clients are served in between."""
    async with rigged(answering()) as rig:
        taken: list[int] = []
        for number in range(30):
            rig.relay.defer(partial(taken.append, number))
        await settle(1)
        assert len(taken) == 4
        await until(lambda: len(taken) == 30)
        assert taken == list(range(30))
