"""Relaying of requests to the engine and of responses to the client, byte for byte."""

import asyncio
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from appliance.gateway.keys import KeyRing
from appliance.model.gateway import Routed, Standing, State
from appliance.model.profile import Adapter, Endpoint, Handling
from appliance.routing.json_body import LONG_BYTES
from appliance.routing.model_names import routed
from appliance.routing.origin_policy import OriginPolicy
from tests.fakes.engine_server import (
    CHUNKED,
    EVENTS,
    LAST,
    Talk,
    answering,
    chunk,
    sized,
)
from tests.fakes.unit_specs import made
from tests.unit.gateway.relay.rig import get, post, rigged
from tests.waiting import settle


def serving(name: str) -> State:
    """State in which only this profile serves."""
    return State(standings={name: Standing.SERVING}, committed=(name,))


async def test_one_after_another() -> None:
    """Requests on one connection share one to the engine, with cached heads and without."""
    async with rigged(answering(sized(b'{"ok": 1}', headers=b"X-Trace: 7\r\n"))) as rig:
        caller = await rig.connect()
        for number in range(5):
            await caller.send(post({"model": "genesis", "n": 10**number}))
            answer = await caller.answer()
            assert (answer.status, answer.body, answer.whole) == (200, b'{"ok": 1}', True)
            assert answer.headers == {"x-trace": "7", "content-length": "9"}
        assert len(rig.engine.talks) == 1
        assert [json.loads(heard.body)["n"] for heard in rig.engine.heard] == [
            1,
            10,
            100,
            1000,
            10000,
        ]
        await caller.close()


async def test_lengths_of_known_answers() -> None:
    """A response under a cached head has its own length, also when it comes in parts."""
    bodies = [b"1", b"22", b"333" * 100, b"", b"4" * 100_000, b"55"]

    async def script(talk: Talk) -> None:
        for body in bodies:
            await talk.request()
            await talk.say(
                *([sized(body)] if len(body) < 300 else [sized(body)[:50], sized(body)[50:]])
            )

    async with rigged(script) as rig:
        caller = await rig.connect()
        for body in bodies:
            await caller.send(post())
            assert (await caller.answer()).body == body
        await caller.close()


async def test_what_the_engine_gets() -> None:
    """The engine gets its own host and key, the path and query as they were, and no key of ours."""
    profile = Routed(
        name="genesis",
        served=("claude-*",),
        engine_name="qwen",
        endpoint=Endpoint(port=1),
        handling=Handling(
            set_parameters={"chat_template_kwargs.enable_thinking": False},
            strip_parameters=("top_k",),
        ),
        engine_key="sesame",
    )
    async with rigged(answering(sized(b"{}")), profile=profile) as rig:
        request = post(
            {"model": "claude-x", "top_k": 3, "messages": []},
            path="/v1/messages?beta=true",
            headers="Authorization: Bearer right\r\nX-Mine: 1\r\n",
        )
        await rig.ask(request)
        (heard,) = rig.engine.heard
        assert heard.line == b"POST /v1/messages?beta=true HTTP/1.1"
        assert heard.header(b"host") == [b"127.0.0.1:%d" % rig.engine.port]
        assert heard.header(b"authorization") == [b"Bearer sesame"]
        assert heard.header(b"x-mine") == [b"1"]
        assert json.loads(heard.body) == {
            "chat_template_kwargs": {"enable_thinking": False},
            "model": "qwen",
            "messages": [],
        }
        assert rig.watcher.seen[0].key is not None


@pytest.mark.parametrize("headers", ["Content-Type: text/plain\r\n", ""])
async def test_bodies_that_say_they_are_no_json(headers: str) -> None:
    """Stripped parameters are taken out of every body that an engine would read as JSON."""
    profile = Routed(
        name="genesis",
        served=(),
        engine_name="genesis",
        endpoint=Endpoint(port=1),
        handling=Handling(strip_parameters=("secret",)),
    )
    async with rigged(answering(sized(b"{}")), profile=profile) as rig:
        for path in ("/v1/chat/completions", "/apply-template"):
            body = b' {"secret":1}'
            head = (
                f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
            )
            assert (await rig.ask(head.encode() + body)).status == 200
        assert [heard.body for heard in rig.engine.heard] == [b" {}", b" {}"]


async def test_forms() -> None:
    """The model of a form routes it as that of a JSON body does, and is changed in it."""
    profile = Routed(
        name="whisper", served=("whisper-1",), engine_name="w", endpoint=Endpoint(port=1)
    )
    form = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\0\r\n--b--\r\n'
    )
    head = (
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: a\r\nContent-Length: "
        f"{len(form)}\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    async with rigged(answering(sized(b"{}")), profile=profile) as rig:
        rig.table.take(serving("whisper"))
        assert (await rig.ask(head.encode() + form)).status == 200
        assert rig.engine.heard[0].body == form.replace(b"whisper-1", b"w")


def form_request(model: str) -> bytes:
    """Return an upload of a sound that names a model."""
    form = (
        f'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n'
        '--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\0\r\n--b--\r\n'
    )
    return (
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: a\r\nContent-Length: "
        f"{len(form)}\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n{form}"
    ).encode()


LONG = "x" * (LONG_BYTES + 1)


def requests_for(model: str) -> list[bytes]:
    """Return requests in every API, in bodies of every size and form, that name a model."""
    return [
        form_request(model),
        post({"model": model, "input": "x"}, path="/v1/embeddings"),
        post({"model": model, "prompt": LONG}, path="/v1/completions"),
        post({"model": model, "nested": {"model": "x"}}, path="/v1/messages"),
        *(post({"model": model}, path=path) for path in ("/v1/chat/completions", "/v1/responses")),
    ]


@pytest.mark.parametrize(("keep_names", "pattern"), [(False, "m1"), (True, "alias-x")])
async def test_a_name_that_the_engine_knows_reaches_it(
    keep_names: bool,  # noqa: FBT001
    pattern: str,
) -> None:
    """Only the profile's own name and `default` become the engine's first, and patterns unless names are kept."""
    applied = replace(
        made("box", "gpu-0", served=("m1", "alias-*", "m2")),
        handling=Handling(keep_names=keep_names),
        adapters=(
            Adapter(name="sql", engine_name="sql", path="/a"),
            Adapter(name="de", engine_name="m1:de", path="/b"),
        ),
    )
    arrivals = {
        **{name: name for name in ("m1", "m2", "sql")},
        "de": "m1:de",
        **dict.fromkeys(("box", "default"), "m1"),
        "alias-x": pattern,
    }
    async with rigged(answering(sized(b"{}")), profile=routed(applied)) as rig:
        rig.table.take(serving("box"))
        for asked, arriving in arrivals.items():
            for request, expected in zip(requests_for(asked), requests_for(arriving), strict=True):
                assert (await rig.ask(request)).status == 200
                body = rig.engine.heard[-1].body
                assert body == expected.partition(b"\r\n\r\n")[2], (asked, request[:60])


@pytest.mark.parametrize("path", ["/tokenize", "/v1/files"])
async def test_bodies_that_are_none_of_our_business(path: str) -> None:
    """A body that no engine reads as JSON goes on unchanged."""
    async with rigged(answering(sized(b"{}"))) as rig:
        head = f"PUT {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n".encode()
        assert (await rig.ask(head + b"\0\1[]")).status == 200
        assert rig.engine.heard[0].body == b"\0\1[]"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"[]", None),
        (b'{"model": 1}', "model"),
        (b'{"model":"a","model":"b"}', "model"),
        (b"{", None),
    ],
)
async def test_bodies_that_cannot_be_routed(body: bytes, param: str | None) -> None:
    """A body that could be read in two ways is refused, and the connection stays good."""
    async with rigged(answering(sized(b"{}"))) as rig:
        caller = await rig.connect()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
        await caller.send(head % len(body) + body)
        answer = await caller.answer()
        assert (answer.status, answer.error["param"]) == (400, param)
        await caller.send(post())
        assert (await caller.answer()).status == 200
        await caller.close()


async def test_large_requests() -> None:
    """A large body arrives as it was sent, whatever changes in it."""
    prompt = "x" * 3_000_000
    async with rigged(answering(sized(b"{}"))) as rig:
        for model in ("genesis", "default"):
            assert (await rig.ask(post({"prompt": prompt, "model": model}))).status == 200
        said = [json.loads(heard.body) for heard in rig.engine.heard]
        assert said == [{"prompt": prompt, "model": "genesis"}] * 2


async def test_request_in_chunks() -> None:
    """A chunked request goes on with a length; trailers are dropped."""
    body = post().partition(b"\r\n\r\n")[2]
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [head, *(b"1;x=y\r\n%c\r\n" % byte for byte in body), b"0\r\nX: y\r\n\r\n"]
    async with rigged(answering(sized(b"{}"))) as rig:
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(*pieces)
            assert (await caller.answer()).status == 200
        assert [heard.body for heard in rig.engine.heard] == [body, body]
        assert rig.engine.heard[0].header(b"x") == []
        await caller.close()


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE"])
async def test_other_methods(method: str) -> None:
    """Requests without a body go on; the response to HEAD is the head of that to GET."""

    async def script(talk: Talk) -> None:
        while True:
            await talk.request()
            await talk.say(sized(b"12345", headers=b"Allow: GET\r\n"))

    async with rigged(script) as rig:
        for _ in range(2):
            answer = await rig.ask(get("/health", method=method))
            assert (answer.status, answer.headers["content-length"]) == (200, "5")
            assert answer.body == (b"" if method == "HEAD" else b"12345")
            assert answer.whole
        sent = "GET" if method == "HEAD" else method
        assert rig.engine.heard[0].line == f"{sent} /health HTTP/1.1".encode()


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_answers_without_a_body(status: bytes) -> None:
    """A response that HTTP defines without a body ends with its head."""
    async with rigged(answering(b"HTTP/1.1 %b\r\nETag: x\r\n\r\n" % status)) as rig:
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(get("/health"))
            answer = await caller.answer()
            assert (answer.status, answer.headers) == (int(status[:3]), {"etag": "x"})
        assert len(rig.engine.talks) == 1
        await caller.close()


async def test_interim_answers() -> None:
    """Interim responses of an engine are dropped."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    async with rigged(answering(early, early + sized(b"{}"))) as rig:
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(post())
            answer = await caller.answer()
            assert (answer.status, answer.interim, answer.headers) == (
                200,
                [],
                {"content-length": "2"},
            )
        assert len(rig.engine.talks) == 1
        await caller.close()


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_answers_that_end_with_the_connection(version: bytes) -> None:
    """A response that ends with the engine's connection leaves the client's own open."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(b"HTTP/%b 200 OK\r\nX: y\r\n\r\n" % version, b"abc", b"def")

    async with rigged(script) as rig:
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(post())
            answer = await caller.answer()
            assert (answer.body, answer.whole) == (b"abcdef", True)
            assert answer.headers == {"x": "y", "transfer-encoding": "chunked"}
        await caller.close()


async def test_clients_of_http_1_0() -> None:
    """HTTP/1.0 gets no chunks: the body ends with the connection."""
    async with rigged(answering(CHUNKED, chunk(b"abc") + chunk(b"def"), LAST)) as rig:
        caller = await rig.connect()
        await caller.send(post().replace(b"HTTP/1.1", b"HTTP/1.0"))
        answer = await caller.reader.read()
        assert answer == (
            b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nConnection: close\r\n\r\nabcdef"
        )
        await caller.close()


async def test_clients_that_want_to_close() -> None:
    """A client that sends `Connection: close` gets it back, and is closed."""
    async with rigged(answering(sized(b"{}"))) as rig:
        caller = await rig.connect()
        await caller.send(post(headers="Connection: close\r\n"))
        answer = await caller.answer()
        assert (answer.headers["connection"], answer.body) == ("close", b"{}")
        assert await caller.ended()


async def test_unix_sockets(tmp_path: Path) -> None:
    """An engine on a unix socket is used like any other."""
    async with rigged(answering(sized(b"{}")), path=str(tmp_path / "engine")) as rig:
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(post())
            assert (await caller.answer()).body == b"{}"
        assert rig.engine.heard[0].header(b"host") == [b"localhost"]
        assert len(rig.engine.talks) == 1
        await caller.close()


async def test_engines_with_a_worker_for_each_connection() -> None:
    """An idle connection is closed where the engine has no worker for it and for a new one."""
    worker = asyncio.Lock()

    async def script(talk: Talk) -> None:
        async with worker:
            while True:
                await talk.request()
                await settle()
                await talk.say(sized(b"{}"))

    async with rigged(script) as rig:
        callers = [await rig.connect() for _ in range(4)]
        async with asyncio.timeout(2):
            for _ in range(2):
                for caller in callers:
                    await caller.send(post())
                for caller in callers:
                    assert (await caller.answer()).status == 200


async def test_events_as_they_come() -> None:
    """The head of a stream, and each event, reach the client before the next is there."""
    go_on = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS)
        await go_on.wait()
        await talk.say(chunk(b"data: 1\n\n"))
        await talk.request()

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post())
        head = await caller.reader.readuntil(b"\r\n\r\n")
        assert head == EVENTS
        go_on.set()
        assert await caller.reader.readexactly(14) == chunk(b"data: 1\n\n")
        await caller.close()


async def test_parts_of_chunks() -> None:
    """A chunk is passed on when it is complete, or 64 KiB at a time."""
    big = bytes(200_000)

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(CHUNKED, b"3\r\na")
        await talk.delivered()
        await talk.say(b"bc\r\n", b"%x\r\n" % len(big), big[:150_000])
        await talk.delivered()
        await talk.say(big[150_000:], b"\r\n" + LAST)

    async with rigged(script) as rig:
        caller = await rig.connect()
        await caller.send(post())
        await caller.reader.readuntil(b"\r\n\r\n")
        assert await caller.reader.readexactly(8) == chunk(b"abc")
        first = int(await caller.reader.readline(), 16)
        assert 64 << 10 <= first < 200_000
        await caller.close()


async def test_tails() -> None:
    """The observer gets the last bytes of a body, long or short."""
    long = b"".join(b"data: %d\n\n" % number for number in range(5000))
    events = [chunk(long[at : at + 100]) for at in range(0, len(long), 100)]

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(sized(b"{1}"))
        await talk.request()
        await talk.say(sized(long))
        await talk.request()
        await talk.say(EVENTS, *events, LAST)

    async with rigged(script) as rig:
        caller = await rig.connect()
        for _ in range(3):
            await caller.send(post())
            await caller.answer()
        short, sent, streamed = (seen.end for seen in rig.watcher.seen)
        assert short == (200, b"{1}")
        assert streamed == sent == (200, long[-8192:])
        assert sum(rig.watcher.seen[2].sizes) == len(long)
        await caller.close()


async def test_keys() -> None:
    """Beyond loopback a key is needed; a wrong one is refused everywhere; keys count by name."""
    async with rigged(answering(sized(b"{}")), loopback=False) as rig:
        for headers, status in [
            ("", 401),
            ("Authorization: Bearer wrong\r\n", 401),
            ("Authorization: Bearer right\r\n", 200),
            ("x-api-key: right\r\n", 200),
        ]:
            assert (await rig.ask(post(headers=headers))).status == status
        assert (await rig.ask(get("/v1/models"))).headers["www-authenticate"] == "Bearer"
        assert len(rig.engine.heard) == 2


TYPED_WRONGLY = (
    "apl-1f3a9c2e_5b0c7d",
    "Apl_1f3a9c2e_5b0c7d",
    "1f3a9c2e_5b0c7d",
    "sk-x",
    "apl_1f_5b",
)


@pytest.mark.parametrize(
    "given", ["Authorization: Bearer {}", "x-api-key: {}", "Authorization: {}"]
)
@pytest.mark.parametrize("typed", [*TYPED_WRONGLY, ""])
async def test_a_key_that_is_typed_wrongly(tmp_path: Path, given: str, typed: str) -> None:
    """Where a key is needed, any text that is none is called unknown; only no text at all is called missing."""
    async with rigged(answering(), loopback=False, key_checker=KeyRing(tmp_path)) as rig:
        answer = await rig.ask(post(headers=given.format(typed) + "\r\n"))
        is_missing = not typed or given == "Authorization: {}"
        assert answer.error["code"] == ("key_missing" if is_missing else "key_unknown")


@pytest.mark.parametrize(("typed", "status"), [("sk-x", 200), ("none", 200), ("apl_x_y", 401)])
async def test_a_made_up_key_on_this_machine(tmp_path: Path, typed: str, status: int) -> None:
    """No key is needed there, so that any text will do, but for one in the form of a key of this box."""
    async with rigged(answering(sized(b"{}")), key_checker=KeyRing(tmp_path)) as rig:
        for header in ("Authorization: Bearer ", "x-api-key: "):
            assert (await rig.ask(post(headers=f"{header}{typed}\r\n"))).status == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Origin: https://evil.example\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Origin: https://evil.example\r\nx-api-key: right\r\n", 200),
        ("Origin: http://localhost:3000\r\nSec-Fetch-Site: cross-site\r\n", 200),
    ],
)
async def test_pages(headers: str, status: int) -> None:
    """A request from another origin reaches no engine without a key, by whatever method."""
    async with rigged(answering(sized(b"{}")), origin_policy=OriginPolicy.of(["box"], [])) as rig:
        for request in (post(headers=headers), get("/props", method="OPTIONS", headers=headers)):
            assert (await rig.ask(request)).status == status
        assert len(rig.engine.heard) == (2 if status == 200 else 0)
        # What an engine makes of a page is its own affair.
        assert all(len(heard.header(b"origin")) == 1 for heard in rig.engine.heard)


@pytest.mark.parametrize(("headers", "status"), [("", 421), ("x-api-key: right\r\n", 200)])
async def test_names(headers: str, status: int) -> None:
    """A request with a foreign host name reaches no engine without a key."""
    async with rigged(answering(sized(b"{}")), origin_policy=OriginPolicy.of([], [])) as rig:
        assert (await rig.ask(post(headers=headers))).status == status
        assert len(rig.engine.heard) == (status == 200)


async def test_paths_that_govern() -> None:
    """An admin path is exposed only where the settings allow it."""
    async with rigged(answering(sized(b"[]")), allowed=["/slots"]) as rig:
        assert (await rig.ask(get("/metrics"))).status == 403
        assert (await rig.ask(get("/x/../%6detrics"))).status == 403
        assert (await rig.ask(get("/slots"))).status == 200


@pytest.mark.parametrize(
    "raw",
    [get("/api/tags"), get("/api/version"), post(path="/api/chat"), post(path="/api/generate")],
)
async def test_ollamas_clients_are_told_what_is_spoken(raw: bytes) -> None:
    """Clients of Ollama get an error in their own form, with the paths of this box, and no engine is asked."""
    async with rigged(answering(sized(b"{}"))) as rig:
        answer = await rig.ask(raw)
        assert answer.status == 404
        assert answer.headers["content-type"] == "application/json"
        (text,) = json.loads(answer.body).values()
        assert "the base URL http://box/v1 (" in text
        assert "/v1/chat/completions" in text
        assert "Ollama" in text
        assert rig.engine.talks == []


async def test_ollama_behind_the_gateway_can_be_let_through() -> None:
    """A profile may run Ollama itself: the settings then name its paths."""
    async with rigged(answering(sized(b"{}")), allowed=["/api/tags"]) as rig:
        assert (await rig.ask(get("/api/tags"))).status == 200
        assert (await rig.ask(get("/api/ps"))).status == 404


async def test_models() -> None:
    """The gateway itself serves the list of models, also for HEAD and for one entry."""
    async with rigged(answering()) as rig:
        answer = await rig.ask(get("/v1/models"))
        assert [entry["id"] for entry in json.loads(answer.body)["data"]] == ["default", "genesis"]
        assert (await rig.ask(get("/v1/models", method="HEAD"))).body == b""
        assert json.loads((await rig.ask(get("/v1/models/genesis"))).body)["id"] == "genesis"
        assert (await rig.ask(get("/v1/models/x"))).status == 404
        assert rig.engine.talks == []


@given(
    bodies=st.lists(st.binary(max_size=200), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 3000), max_size=12),
    events=st.booleans(),
)
def test_bodies_are_identical(bodies: list[bytes], cuts: list[int], *, events: bool) -> None:
    """However chunks and packets fall, the client's body is the engine's body."""
    stream = (EVENTS if events else CHUNKED) + b"".join(chunk(b) for b in bodies if b) + LAST
    places = sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})
    pieces = [stream[a:b] for a, b in pairwise(places)]

    async def scenario() -> None:
        async with rigged(answering(*pieces)) as rig:
            answer = await rig.ask(post())
            assert answer.whole
            assert answer.body == b"".join(bodies)

    uvloop.run(scenario())


@given(body=st.binary(max_size=5000), cuts=st.lists(st.integers(0, 6000), max_size=6))
def test_requests_are_identical(body: bytes, cuts: list[int]) -> None:
    """However the packets of a request fall, the engine gets the same bytes."""
    request = (
        b"PUT /v1/files HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\nX%b"
        % (len(body) + 1, body)
    ) * 2
    places = sorted({0, *(cut for cut in cuts if cut < len(request)), len(request)})
    pieces = [request[a:b] for a, b in pairwise(places)]

    async def scenario() -> None:
        async with rigged(answering(sized(b"{}"))) as rig:
            caller = await rig.connect()
            await caller.send(*pieces)
            assert [(await caller.answer()).status for _ in range(2)] == [200, 200]
            assert [heard.body for heard in rig.engine.heard] == [b"X" + body] * 2
            await caller.close()

    uvloop.run(scenario())
