"""Targets of the fuzzer: invariants for all bytes of clients and engines."""

import asyncio
import gzip
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from appliance.gateway.client_connection import ClientConnection
from appliance.gateway.keys import KeyRing
from appliance.gateway.meter import Meter
from appliance.gateway.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.model.gateway import Limits, Routed, Standing, State
from appliance.model.profile import Endpoint
from tests.fakes.zstd import zstd
from tests.fuzz.answers import Told, read_answers
from tests.fuzz.inputs import Input
from tests.fuzz.world import End, World
from tests.smuggling.cases import asking_sentinel
from tests.smuggling.reference import Read, Reader, read_answer, read_leniently

LIMITS = Limits(
    head_bytes=2048, body_bytes=20_000, head_s=10.0, body_s=10.0, idle_s=10.0, stuck_s=10.0
)
PATIENCE_S = 60.0
"""Seconds after which every limit has passed, one after the other."""
GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_REQUESTS = (
    b'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{"model":"m"}',
    b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 27\r\n\r\n{"model":"m","stream":true}',
    b"HEAD /v1/thing HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/thing HTTP/1.0\r\n\r\n",
    b"GET /v1/thing HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
)
_HEAD_ONLY, _WEBSOCKET = 2, 4
_LATE_S = 0.05
_TURNS = 10
"""Turns of the event loop for a request to the engine and its answer."""
_A_WORLD = 10_000
"""Inputs until its clock begins again: at 2^24 s, a nanosecond more is no later to a float."""
_ABSOLUTE = re.compile(rb"\Ahttps?://[^/?#]*", re.IGNORECASE)
_NO_MODEL = re.compile(rb'("model"\s*:\s*)"(?:default)?"')


class BrokenError(AssertionError):
    """Violation of an invariant."""


@dataclass(slots=True)
class Engine:
    """Reads what it is asked as h11 does, and answers every request well."""

    late: bool = False
    """Whether the engine delays, so that more of the client's bytes arrive meanwhile."""
    leaves: bool = False
    """Whether the engine closes the connection after each answer."""
    readers: dict[End, Reader] = field(default_factory=dict)
    requests: list[Read] = field(default_factory=list)

    def hear(self, end: End, data: bytes) -> None:
        """More from the gateway."""
        reader = self.readers.setdefault(end, Reader())
        asked = reader.feed(data)
        must(reader.error is None, f"the engine gets nonsense: {reader.error}")
        self.requests += asked
        for request in asked:
            must(request.method != b"HEAD", "the engine is asked HEAD")
            loop = asyncio.get_running_loop()
            loop.call_later(_LATE_S if self.late else 0.0, self._answer, end, GOOD)

    def _answer(self, end: End, answer: bytes) -> None:
        end.say(answer)
        if self.leaves:
            end.hang_up()

    def in_order(self) -> bool:
        """Whether no request was left half."""
        return all(reader.between or reader.over for reader in self.readers.values())


class Stage:
    """A world for one input after another: nothing that matters is left when one is over."""

    def __init__(self) -> None:
        self._world = World()
        self._played = 0

    def play(self, given: Input) -> None:
        """Play an input; raises when something does not hold."""
        self._played += 1
        if self._played % _A_WORLD == 0:
            self._world.close()
            self._world = World()
        world = self._world
        world.begin()
        world.run_until_complete(_answer(world, given) if given.engine else _ask(world, given))
        must(not world.troubles, "; ".join(world.troubles))

    def close(self) -> None:
        """End the world."""
        self._world.close()


def new_relay() -> Relay:
    """A gateway with one profile, ``m``, that serves."""
    routed = Routed(name="m", served=(), engine_name="m", endpoint=Endpoint(port=1))
    table = RoutingTable({"m": routed})
    table.take(State(standings={"m": Standing.SERVING}, committed=("m",)))
    keys = KeyRing(Path("/nonexistent"))
    return Relay(router=table, observer=Meter(), key_checker=keys, limits=LIMITS)


# --- a client says anything ----------------------------------------------------------------


async def _ask(world: World, given: Input) -> None:
    relay = new_relay()
    engine = Engine(late=bool(given.how & 4), leaves=bool(given.how & 8))
    world.engine = engine.hear
    client = End(ClientConnection(relay, loopback=True))
    for piece in given.pieces():
        client.say(piece)
        await settle()
        if given.how & 1 and client.written:
            await _choke(client)
    if given.how & 2:
        client.hang_up()
    await asyncio.sleep(PATIENCE_S)
    must(client.lost, "the connection is still there")
    must(engine.in_order(), "a request was left half")
    _check_memory(relay)
    _check_forwarded(given.sent(), engine.requests)
    _check_told(client, given.sent(), engine.requests)
    if given.padded and not given.how & 2:
        must(len(read_answers(bytes(client.written))) == 1, "a body without an answer")


def _check_forwarded(raw: bytes, requests: list[Read]) -> None:
    """No request that h11 does not see, in its order, and each as h11 sees it."""
    seen = read_leniently(raw)
    left = iter(seen.requests)
    for ours in requests:
        # Those in between were refused for what they ask, and the connection went on.
        must(any(_same(ours, theirs) for theirs in left), f"h11 sees none such ({seen.error})")


def _same(ours: Read, theirs: Read) -> bool:
    return (
        ours.method == (b"GET" if theirs.method == b"HEAD" else theirs.method)
        and _origin(theirs.target) == ours.target
        and ours.body in {theirs.body, _named(theirs.body), _named(_decoded(theirs))}
    )


def _origin(target: bytes) -> bytes:
    """A target without the host that it may name."""
    path = _ABSOLUTE.sub(b"", target)
    return path if path.startswith((b"/", b"*")) else b"/" + path


def _decoded(request: Read) -> bytes:
    """A body without its coding; as it is, if it has none that is known."""
    coding = b"".join(request.values(b"content-encoding")).lower()
    try:
        if coding in {b"gzip", b"x-gzip"}:
            return gzip.decompress(request.body)
        if coding == b"zstd":
            return zstd.decompress(request.body)
    except (OSError, EOFError, zlib.error, zstd.ZstdError):
        pass
    return request.body


def _named(body: bytes) -> bytes:
    """A body that leaves the model to the gateway, as the engine gets it."""
    return _NO_MODEL.sub(rb'\1"m"', body, count=1)


def _check_told(client: End, raw: bytes, requests: list[Read]) -> None:
    """One good answer for each request, and at most one refusal behind them."""
    if b"HEAD" in raw:
        # Which answers have no body then, only the gateway could tell.
        return
    told = read_answers(bytes(client.written))
    good = [one for one in told if one.status == 200 and one.body == b"{}"]
    must(len(good) <= len(requests), "an answer that nobody gave")
    must(all(one.whole for one in told), "a half answer")
    must(not any(one.close for one in told[:-1]), "an answer behind the last one")


# --- an engine says anything ---------------------------------------------------------------


async def _answer(world: World, given: Input) -> None:
    relay, engine = new_relay(), Engine()
    kind = given.how % len(_REQUESTS)
    asked: list[End] = []
    world.engine = lambda end, _: asked.append(end)
    client = End(ClientConnection(relay, loopback=True))
    client.say(_REQUESTS[kind])
    await settle()
    must(len(asked) == 1, "the request did not get there")
    for piece in given.pieces():
        asked[0].say(piece)
        await settle()
        if given.how & 0x40:
            await _choke(client)
    if given.how & 0x80:
        asked[0].hang_up()
        await settle()
    if kind != _WEBSOCKET:
        told = _check_answer(client, given, head_only=kind == _HEAD_ONLY)
        world.engine = engine.hear
        for end in world.engines:
            end.heard = engine.hear
        if told is not None and told.whole:
            await _check_next(client)
    asked[0].hang_up()
    client.hang_up()
    await asyncio.sleep(PATIENCE_S)
    must(client.lost, "the connection is still there")
    _check_memory(relay)


def _check_answer(client: End, given: Input, *, head_only: bool) -> Told | None:
    """At most one answer, the engine's as h11 sees it, and no end that the engine's has not."""
    closed = client.is_closing() and not client.aborted
    told = read_answers(bytes(client.written), head_only=head_only, closed=closed)
    must(len(told) <= 1, "two answers to one request")
    if not told:
        must(not client.is_closing() or client.aborted, "the client was not told")
        return None
    if told[0].whole and not _own_words(told[0], head_only=head_only):
        seen = read_answer(given.raw, head_only=head_only, closed=bool(given.how & 0x80))
        must(seen.status in (None, told[0].status), "another status")
        must(seen.status is None or seen.whole or seen.ended, "an end was made up")
        must(seen.status is None or seen.body == told[0].body, "another body")
    return told[0]


def _own_words(told: Told, *, head_only: bool) -> bool:
    """Whether it is the gateway that speaks, of an engine's failure."""
    return b'"engine_failed"' in told.body or (head_only and told.status == 502)


async def _check_next(client: End) -> None:
    """The next request gets its own answer, not what the engine said too much."""
    if client.is_closing() or client.ended:
        return
    del client.written[:]
    client.say(asking_sentinel())
    await settle()
    told = read_answers(bytes(client.written))
    must(
        [(one.status, one.body) for one in told] == [(200, b"{}")], "the answer to another request"
    )


# --- both -----------------------------------------------------------------------------------


async def settle() -> None:
    """Let everything happen that takes no time: a write may wait for the end of its turn."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _choke(client: End) -> None:
    """A client that takes nothing for a moment."""
    if client.lost or client.is_closing():
        return
    client.unsent = len(client.written)
    client.protocol.pause_writing()
    await asyncio.sleep(0.1)
    client.unsent = 0
    if not client.lost:
        client.protocol.resume_writing()
    await settle()


def _check_memory(relay: Relay) -> None:
    """Check that no memory is kept for clients that have left."""
    must(relay.buffered_bytes == 0, f"{relay.buffered_bytes} bytes are kept")
    must(relay.in_flight(["m"]) == 0, "a request is still under way")
    must(len(relay.hold_queue) == 0, "a request still waits")


def must(holds: object, otherwise: str) -> None:
    """Raise unless it holds."""
    if not holds:
        raise BrokenError(otherwise)
