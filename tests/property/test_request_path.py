"""Bodies of every kind, on both sides of every threshold: one answer each, and the same at every size."""

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.gateway import client_connection, engine_pool, request_body
from appliance.gateway.client_connection import ClientConnection
from appliance.gateway.keys import KeyRing
from appliance.gateway.meter import Meter
from appliance.gateway.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.model.gateway import Limits, Routed, Standing, State
from appliance.model.profile import Endpoint, Handling
from appliance.routing import json_body, json_scanner
from tests.fakes.zstd import zstd
from tests.fuzz.answers import Told, read_answers
from tests.fuzz.targets import Engine, settle
from tests.fuzz.world import End, World

LIMITS: Final = Limits(body_bytes=300_000)
THRESHOLDS: Final = (
    json_scanner._SHORT_BYTES,
    client_connection._SMALL_BYTES,
    client_connection._AHEAD_BYTES,
    request_body._FED_BYTES,
    json_body.LONG_BYTES,
    json_body._LARGEST_INSIDE,
    engine_pool._LARGE_BYTES,
    json_scanner._DECODED_BYTES,
    LIMITS.body_bytes,
)
"""Sizes in bytes at which a body takes another way, or is refused."""
SIZES: Final = sorted({256, *(most + more for most in THRESHOLDS for more in (-1, 0, 1))})
CHANGES: Final[tuple[dict[str, object], ...]] = ({}, {"seed": 1, "kwargs.thinking": False})
"""Parameters that a profile sets; with any, a plain body is scanned once more."""
CHAT, MESSAGES, OTHER = "/v1/chat/completions", "/v1/messages", "/v1/thing"

Body = Callable[[int], bytes]
"""Maker of a body of so many bytes."""


def padded(before: bytes, after: bytes) -> Body:
    """Return the maker of a body with as many letters in the middle as it takes."""
    return lambda size: before + b"x" * (size - len(before) - len(after)) + after


def member(text: bytes) -> Body:
    """Return the maker of a body with a member of any length before another one."""
    return padded(b'{"model":"m","prompt":"', b'",%b}' % text)


ANSWERED: Final[Mapping[str, tuple[Body, int]]] = {
    "plain": (member(b'"t":0.5'), 200),
    "a stream": (member(b'"stream":true'), 200),
    "NaN": (member(b'"t":NaN'), 400),
    "Infinity": (member(b'"t":Infinity'), 400),
    "-Infinity": (member(b'"t":-Infinity'), 400),
    "NaN before all else": (padded(b'{"t":NaN,"model":"m","prompt":"', b'"}'), 400),
    "NaN in a list": (member(b'"t":[1,NaN]'), 400),
    "Infinity in an object": (member(b'"t":{"a":{"b":Infinity}}'), 400),
    "-Infinity as the model": (padded(b'{"model":-Infinity,"p":"', b'"}'), 400),
    "half a word": (member(b'"t":Na'), 400),
    "a number with a zero": (member(b'"t":01'), 400),
    "a number without digits": (member(b'"t":-'), 400),
    "a number of 200 digits": (member(b'"t":' + b"9" * 200), 200),
    "a comma too many": (member(b'"t":1,'), 400),
    "single quotes": (member(b"'t':1"), 400),
    "a control character": (member(b'"t":"\n"'), 400),
    "an escape that is none": (member(b'"t":"\\x"'), 400),
    "half a surrogate": (member(b'"t":"\\ud800"'), 200),
    "not UTF-8": (member(b'"t":"\xff"'), 400),
    "overlong UTF-8": (member(b'"t":"\xc0\xaf"'), 400),
    "two-byte text": (member('"t":"ü"'.encode()), 200),
    "an escaped name": (member(b'"\\u0073tream":true'), 200),
    "two models": (member(b'"model":"m"'), 400),
    "two models, one escaped": (member(b'"mod\\u0065l":"m"'), 400),
    "two streams": (member(b'"stream":true,"stream":false'), 400),
    "no model": (padded(b'{"prompt":"', b'"}'), 200),
    "a model of null": (padded(b'{"model":null,"prompt":"', b'"}'), 200),
    "a model of true": (padded(b'{"model":true,"prompt":"', b'"}'), 400),
    "a model in a list": (padded(b'{"model":["m"],"prompt":"', b'"}'), 400),
    "another model": (padded(b'{"model":"n","prompt":"', b'"}'), 404),
    "a model of half a surrogate": (padded(b'{"model":"\\ud800","prompt":"', b'"}'), 404),
    "an escaped model": (padded(b'{"model":"\\u006d","prompt":"', b'"}'), 200),
    "blanks before": (lambda size: b" " * (size - 13) + b'{"model":"m"}', 0),
    "blanks behind": (lambda size: b'{"model":"m"}' + b" " * (size - 13), 200),
    "something behind": (padded(b'{"model":"m"}', b""), 400),
    "no end": (padded(b'{"model":"m","prompt":"', b""), 400),
    "no bracket at the end": (padded(b'{"model":"m","prompt":["', b'"}'), 400),
    "a list": (padded(b'["', b'"]'), 400),
    "a text": (padded(b'"', b'"'), 400),
    "a byte order mark": (padded(b'\xef\xbb\xbf{"model":"m","prompt":"', b'"}'), 400),
    "brackets": (lambda size: b'{"model":"m","x":' + b"[" * (size - 17), 400),
    "zeros": (lambda size: b"\0" * size, 400),
}
"""Bodies of the chat API by name, with the status of their answer; 0: either 200 or 400."""


CODERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "identity": bytes,
    "gzip": partial(gzip.compress, compresslevel=1),
    "zstd": zstd.compress,
}
WAYS: Final = (
    (1, False, "identity"),
    (4, False, "identity"),
    (4, True, "identity"),
    (1, False, "gzip"),
    (4, True, "zstd"),
)
"""Ways to send a body: in how many pieces, in chunks or not, and with which coding."""


@dataclass
class Stage:
    """A world, and a gateway in it whose one profile serves ``m``."""

    world: World
    relay: Relay
    engine: Engine

    def ask(
        self,
        body: bytes,
        *,
        path: str = CHAT,
        pieces: int = 1,
        chunked: bool = False,
        coding: str = "identity",
    ) -> Told:
        """Return the one answer to a request; raises when there is not exactly one."""
        sent = _pieces(CODERS[coding](body), path, pieces, coding, chunked=chunked)
        return self.world.run_until_complete(self._ask(sent))

    async def _ask(self, pieces: list[bytes]) -> Told:
        self.world.engine = self.engine.hear
        client = End(ClientConnection(self.relay, loopback=True))
        for piece in pieces:
            client.say(piece)
            await settle()
        while self.relay.scans.busy:
            await settle()
        await settle()
        (told,) = read_answers(bytes(client.written))
        client.hang_up()
        await settle()
        assert told.whole
        assert self.relay.buffered_bytes == 0
        assert self.world.troubles == []
        return told


def _pieces(body: bytes, path: str, count: int, coding: str, *, chunked: bool) -> list[bytes]:
    """Return a request as its bytes arrive."""
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Encoding: {coding}\r\n{length}\r\n\r\n"
    if chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    if count == 1:
        return [head.encode() + body]
    step = max(1, -(-len(body) // (count - 1)))
    return [head.encode(), *(body[at : at + step] for at in range(0, len(body), step))]


@pytest.fixture(scope="module", params=CHANGES, ids=("as it is", "changed"))
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    world = World()
    routed = Routed(
        name="m",
        served=(),
        engine_name="m",
        endpoint=Endpoint(port=1),
        handling=Handling(set_parameters=request.param),
    )

    async def relay() -> Relay:
        table = RoutingTable({"m": routed})
        table.take(State(standings={"m": Standing.SERVING}, committed=("m",)))
        keys = KeyRing(Path("/nonexistent"))
        return Relay(router=table, observer=Meter(), key_checker=keys, limits=LIMITS)

    found = Stage(world, world.run_until_complete(relay()), Engine())
    yield found
    world.run_until_complete(found.relay.stop(0))
    world.close()


@pytest.mark.parametrize("kind", ANSWERED)
def test_a_body_is_answered_the_same_at_every_size(
    kind: str, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A way that is faster for some sizes has the contract of the others; nothing is logged."""
    body, expected = ANSWERED[kind]
    for size in SIZES:
        raw = body(size)
        assert len(raw) == size
        for pieces, chunked, coding in WAYS:
            told = stage.ask(raw, pieces=pieces, chunked=chunked, coding=coding)
            wanted = 413 if size > LIMITS.body_bytes else expected
            statuses = {wanted} if wanted else {200, 400}
            assert told.status in statuses, (size, coding, told.body)
            if told.status != 200:
                assert set(json.loads(told.body)) == {"error"}
    assert caplog.record_tuples == []


@pytest.mark.parametrize("path", [MESSAGES, OTHER])
@pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity"])
def test_a_number_that_json_has_not(path: str, word: bytes, stage: Stage) -> None:
    """NaN and infinities are refused in the client's own API, on paths that the gateway does not know as well."""
    for size in SIZES[:-1]:
        told = stage.ask(member(b'"t":%b' % word)(size), path=path)
        assert told.status == 400
        kind = json.loads(told.body)["error"]["type"]
        assert kind == "invalid_request_error"
        assert (json.loads(told.body).get("type") == "error") is (path == MESSAGES)


fragments = st.lists(
    st.sampled_from(
        [
            *(b"{", b"}", b"[", b"]", b":", b",", b'"', b" ", b"\\", b"\\u", b"\\ud800", b"\0"),
            *(b'"model"', b'"m"', b'"stream"', b"true", b"null", b"NaN", b"-Infinity", b"1e999"),
            *(
                b'{"model":"m",',
                b'"p":"',
                b'"}',
                b"\xff",
                "ü".encode(),
                b"\xef\xbb\xbf",
                b"-",
                b"0",
            ),
        ]
    ),
    max_size=12,
).map(b"".join)


@given(
    before=fragments,
    after=fragments,
    size=st.sampled_from(SIZES),
    pieces=st.integers(1, 5),
    chunked=st.booleans(),
    path=st.sampled_from([CHAT, MESSAGES, OTHER]),
    coding=st.sampled_from(sorted(CODERS)),
)
def test_every_request_is_answered(
    stage: Stage,
    *,
    before: bytes,
    after: bytes,
    size: int,
    pieces: int,
    chunked: bool,
    path: str,
    coding: str,
) -> None:
    """A body made of any fragments gets one whole answer; no callback raises."""
    body = padded(before, after)(size)
    told = stage.ask(body, path=path, pieces=pieces, chunked=chunked, coding=coding)
    assert told.status in {200, 400, 404, 413}
