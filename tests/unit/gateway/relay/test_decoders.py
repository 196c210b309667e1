"""Additions of the gateway to streams, as the decoders of clients take it."""

import gzip
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from appliance.model.gateway import Api, Standing
from appliance.routing.refusals import ENGINE_FAILED
from tests.fakes.added_streams import (
    MODEL,
    NOW_UNIX_S,
    PATHS,
    PIECES,
    TEXTS,
    added_streams,
    engine_stream,
)
from tests.fakes.engine_server import CHUNKED, EVENTS, LAST, Talk, chunk
from tests.fakes.event_decoders import DECODERS, Decoder, ShownError, block_splitter
from tests.unit.gateway.relay.rig import Rig, post, rigged

CASES: Final = [(api, decoder) for api, decoders in DECODERS.items() for decoder in decoders]
each_decoder = pytest.mark.parametrize(
    ("api", "decoder"), CASES, ids=[f"{api}-{decoder.__name__}" for api, decoder in CASES]
)


def decoded(decoder: Decoder, body: bytes) -> tuple[list[dict[str, Any]], str]:
    """Return the events that a client hands out, signs of life apart, and the error that it shows."""
    found = []
    try:
        for event in decoder(body):
            choices: list[dict[str, Any]] = event.get("choices", [])
            texts = [c.get("text", c.get("delta", {}).get("content")) for c in choices]
            if event.get("id") == "waiting":
                assert texts == [""]
            elif event.get("type") != "ping":
                found.append(event)
    except ShownError as error:
        return found, str(error)
    return found, ""


async def held(rig: Rig, api: Api) -> bytes:
    """Return the body of a stream that is held until a sign of life was sent, and is then answered."""
    rig.tell(Standing.STARTING)
    caller = await rig.connect()
    await caller.send(post({"model": MODEL, "stream": True}, path=PATHS[api]))
    await caller.begun()
    rig.tell(Standing.SERVING)
    answer = await caller.answer()
    assert answer.whole
    return answer.body


@each_decoder
def test_decoders_take_what_is_added(api: Api, decoder: Decoder) -> None:
    """A decoder hands out the engine's events, all and no others, and shows the refusal after them."""
    for stream in added_streams(api):
        if b"\r\n" in stream.body and decoder is block_splitter:
            continue
        whole = [piece for _, piece in PIECES[api]][: stream.events]
        assert decoded(decoder, stream.body) == (whole, stream.shown), stream.name


def of_table(api: Api, body: bytes) -> tuple[int, str]:
    """Return the events and the message of the stream of the table that this is."""
    timeless = re.sub(rb'"created": ?\d+', b'"created":%d' % NOW_UNIX_S, body)
    found = [stream for stream in added_streams(api) if stream.body == timeless]
    assert found, f"not in the table that clients are checked with: {body!r}"
    return found[0].events, found[0].shown


@pytest.mark.parametrize("api", PATHS)
async def test_signs_of_life(api: Api) -> None:
    """A stream that was held is signs of life and the engine's events."""

    async def script(talk: Talk) -> None:
        while True:
            await talk.request()
            await talk.say(EVENTS, chunk(engine_stream(api)), LAST)

    async with rigged(script) as rig:
        body = await held(rig, api)
    assert of_table(api, body) == (len(TEXTS), "")
    assert len(body) > len(engine_stream(api))


@pytest.mark.parametrize("api", PATHS)
async def test_errors_after_signs_of_life(api: Api) -> None:
    """An engine's end is an error after the signs of life."""

    async def script(talk: Talk) -> None:
        await talk.request()

    async with rigged(script) as rig:
        body = await held(rig, api)
    assert of_table(api, body) == (0, ENGINE_FAILED.message)


def cuts(body: bytes) -> Iterator[int]:
    """Return where a stream is cut: around each line end, and within the lines."""
    for at in range(1, len(body)):
        if b"\n" in body[at - 1 : at + 1] or b"\r" in body[at - 1 : at + 1] or at % 7 == 0:
            yield at


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("api", PATHS)
async def test_an_engine_that_dies_within_an_event(api: Api, line_end: bytes) -> None:
    """Wherever a stream is cut, clients get its whole events, then the error, and no half event."""
    stream = engine_stream(api, line_end)
    ends = [len(engine_stream(api, line_end, events=n)) for n in range(1, len(TEXTS) + 1)]
    at = 0

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS, chunk(stream[:at]))
        await talk.delivered()
        talk.reset()

    async with rigged(script) as rig:
        for at in cuts(stream):
            answer = await rig.ask(post({"model": MODEL, "stream": True}, path=PATHS[api]))
            assert answer.whole
            whole = sum(end <= at for end in ends)
            assert of_table(api, answer.body) == (whole, ENGINE_FAILED.message), at


async def test_an_event_that_waits_for_too_long_is_broken_off() -> None:
    """A long half of an event goes out, and nothing is added to it; one that is complete is as it was."""
    long = b"data: " + b"x" * 600_000
    ending = b""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS, chunk(long))
        await talk.delivered()
        await talk.say(chunk(ending) if ending else b"")
        await talk.delivered()
        if len(ending) > 4:
            await talk.say(chunk(b"data: half"))
            await talk.delivered()
        talk.reset()

    async with rigged(script) as rig:
        for ending in (b"", b"x\n", b"\n\ndata: 2\n\n"):
            caller = await rig.connect()
            await caller.send(post({"model": MODEL, "stream": True}))
            answer = await caller.answer()
            assert answer.body.startswith(long[:300_000])
            assert answer.whole == (len(ending) > 4)
            assert (b"engine_failed" in answer.body) == answer.whole
            assert b"half" not in answer.body


async def test_pieces_of_events_are_put_together() -> None:
    """An event that comes in pieces goes out as it was, once it is whole; comments of an engine at once."""
    pieces = (
        *(b"data: 1", b"\n", b"\n: alive\n", b": alive\n", b"data: 2\r\n", b"\r", b"\n"),
        *(b"event: x\ndata: 3\n\nda", b"ta: 4"),
    )

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS)
        for piece in pieces:
            await talk.say(chunk(piece))
            await talk.delivered()
        await talk.say(LAST)

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post({"model": MODEL, "stream": True}))
        sent = await caller.reader.readuntil(LAST)
    whole = (b"data: 1\n\n: alive\n", b": alive\n", b"data: 2\r\n\r\n", b"event: x\ndata: 3\n\n")
    assert sent.partition(b"\r\n\r\n")[2] == b"".join(map(chunk, (*whole, b"data: 4"))) + LAST


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br", "Gzip "])
@pytest.mark.parametrize("opened", [False, True])
async def test_coded_streams_are_broken_off(coding: str, *, opened: bool) -> None:
    """A coded stream is broken off, and no plain text is added to it."""
    coded = EVENTS.replace(b"\r\n\r\n", b"\r\nContent-Encoding: %b\r\n\r\n" % coding.encode())
    body = gzip.compress(engine_stream(Api.CHAT) * 10)[:30]

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(coded, chunk(body))
        await talk.delivered()

    async with rigged(script) as rig:
        if opened:
            assert b"engine" in await held(rig, Api.CHAT)
            return
        answer = await rig.ask(post({"model": MODEL, "stream": True}))
        assert (answer.body, answer.whole) == (body, False)
        assert answer.headers["content-encoding"] == coding.strip()


async def test_a_coded_stream_goes_on_as_it_is() -> None:
    """A coded stream that an engine ends is passed on byte for byte."""
    coded = EVENTS.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    body = gzip.compress(engine_stream(Api.CHAT))

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(coded, *(chunk(body[n : n + 7]) for n in range(0, len(body), 7)), LAST)

    async with rigged(script) as rig:
        answer = await rig.ask(post({"model": MODEL, "stream": True}))
        assert (answer.body, answer.whole) == (body, True)


async def test_other_bodies_wait_for_nothing() -> None:
    """A body that is no stream of events goes on as it comes."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(CHUNKED, chunk(b"data: half"))
        await talk.delivered()
        await talk.reader.read()

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post())
        await caller.reader.readuntil(b"data: half")
