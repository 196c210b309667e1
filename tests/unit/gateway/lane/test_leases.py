"""Leases of the lane: probes stay away, requests of others are counted or wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.gateway.lane import GrantedLease
from appliance.model.errors import LaneBusyError
from appliance.model.gateway import Routed, Standing, State
from appliance.model.profile import Endpoint
from appliance.system.ports import LaneLease
from appliance.wire.lane import TOKEN_HEADER, LaneOutcome
from tests.fakes.engine_server import Script, Talk, answering, sized
from tests.unit.gateway.lane.lane_rig import BODY, CHAT, LaneRig, lane_rigged, whole
from tests.unit.gateway.relay.rig import get, post
from tests.waiting import until

SERVES = State(standings={"genesis": Standing.SERVING}, committed=("genesis",))


def own(lease: LaneLease) -> bytes:
    """Request of the holder of a lease."""
    return post(headers=f"{TOKEN_HEADER}: {lease.token}\r\n")


@asynccontextmanager
async def slow_request(rig: LaneRig, may_end: asyncio.Event) -> AsyncIterator[None]:
    """A request of a client in flight, whose response ends after this."""
    caller = await rig.relay_rig.connect()
    await caller.send(post())
    await until(lambda: rig.relay_rig.engine.heard)
    yield
    may_end.set()
    assert (await caller.answer()).status == 200


async def test_a_lease_keeps_probes_away(tmp_path: Path) -> None:
    """As long as the lease lasts no probe is admitted; afterwards the next one is."""
    async with lane_rigged(answering(sized(b"{}")), tmp_path) as rig:
        async with rig.lane.lease(["genesis"], exclusive=False):
            with pytest.raises(LaneBusyError, match="a lease lasts"):
                await rig.lane.send("genesis", CHAT, BODY, timeout_s=20).__aenter__()
            with pytest.raises(LaneBusyError, match="a lease lasts"):
                await rig.lane.lease(["genesis"], exclusive=True).__aenter__()
        await until(lambda: rig.relay_rig.relay.lane_holder is None)
        async with rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            assert await whole(response) == b"{}"


async def test_a_lease_takes_the_lane_from_a_probe(tmp_path: Path) -> None:
    """A person waits for the lease, nobody for the probe."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.reader.read()

    async with (
        lane_rigged(script, tmp_path) as rig,
        rig.lane.send("genesis", CHAT, BODY, timeout_s=20) as response,
    ):
        async with rig.lane.lease(["genesis"], exclusive=False):
            assert await whole(response) == b""
        assert (response.outcome, response.detail) == (LaneOutcome.YIELDED, "a lease begins")


async def test_a_lease_counts_the_requests_of_others(tmp_path: Path) -> None:
    """The holder's own requests are known by their header, which no engine sees."""
    async with (
        lane_rigged(answering(sized(b"{}")), tmp_path) as rig,
        rig.lane.lease(["genesis"], exclusive=False) as lease,
    ):
        traffic = lease.traffic()
        for _ in range(2):
            assert (await rig.relay_rig.ask(own(lease))).status == 200
        assert (await rig.relay_rig.ask(get("/v1/models"))).status == 200
        assert (await rig.relay_rig.ask(post({"model": "unknown"}))).status == 404
        assert (await rig.relay_rig.ask(post())).status == 200
        assert await anext(traffic) == 1
        wrong = replace_token(own(lease), lease.token)
        for _ in range(2):
            assert (await rig.relay_rig.ask(wrong)).status == 200
        async for requests in traffic:
            if requests == 3:
                break
        assert (lease.requests, lease.lost) == (3, None)
        heads = [heard.head for heard in rig.relay_rig.engine.heard]
        assert len(heads) == 5
        assert not any(TOKEN_HEADER.lower().encode() in head.lower() for head in heads)


def replace_token(request: bytes, token: str) -> bytes:
    """Return a request with another token of the same length."""
    other = "0" * len(token) if token[0] != "0" else "1" * len(token)
    return request.replace(token.encode(), other.encode())


async def test_a_shared_lease_begins_only_between_requests(tmp_path: Path) -> None:
    """A bench that shares the box does not begin while somebody's request is in flight."""
    may_end = asyncio.Event()
    async with lane_rigged(delayed(may_end), tmp_path) as rig:
        async with slow_request(rig, may_end):
            with pytest.raises(LaneBusyError, match="requests of clients are under way: 1"):
                await rig.lane.lease(["genesis"], exclusive=False).__aenter__()
        async with rig.lane.lease(["genesis"], exclusive=False) as lease:
            assert lease.requests == 0


def delayed(may_end: asyncio.Event) -> Script:
    """Answers every request when a test says so."""

    async def script(talk: Talk) -> None:
        while True:
            await talk.request()
            await may_end.wait()
            await talk.say(sized(b"{}"))

    return script


async def test_an_exclusive_lease_waits_for_requests_in_flight(tmp_path: Path) -> None:
    """Requests in flight finish first; none is cut."""
    may_end = asyncio.Event()
    async with lane_rigged(delayed(may_end), tmp_path) as rig:
        async with slow_request(rig, may_end):
            lease = rig.lane.lease(["genesis"], exclusive=True)
            entering = asyncio.ensure_future(lease.__aenter__())
            await until(lambda: rig.relay_rig.relay.lane_holder is not None)
            assert not entering.done()
        found = await entering
        assert found.requests == 0
        await lease.__aexit__(None, None, None)


async def test_an_exclusive_lease_does_not_wait_for_ever(tmp_path: Path) -> None:
    """Requests that do not end in time are named, and new ones no longer wait."""
    may_end = asyncio.Event()
    async with lane_rigged(delayed(may_end), tmp_path, drain_s=0.05) as rig:
        async with slow_request(rig, may_end):
            with pytest.raises(LaneBusyError, match="requests in flight did not end in time"):
                await rig.lane.lease(["genesis"], exclusive=True).__aenter__()
        await until(lambda: rig.relay_rig.relay.lane_holder is None)
        assert (await rig.relay_rig.ask(post())).status == 200


async def test_requests_of_others_wait_for_an_exclusive_lease(tmp_path: Path) -> None:
    """Requests of others are sent when the lease is over; the holder's own are sent at once."""
    async with lane_rigged(answering(sized(b"{}")), tmp_path) as rig:
        relay = rig.relay_rig.relay
        async with rig.lane.lease(["genesis"], exclusive=True) as lease:
            caller = await rig.relay_rig.connect()
            await caller.send(post())
            await until(lambda: len(relay.hold_queue) == 1)
            for _ in range(2):
                assert (await rig.relay_rig.ask(own(lease))).status == 200
            assert len(rig.relay_rig.engine.heard) == 2
            assert relay.in_flight(["genesis"]) == 0
        assert (await caller.answer()).status == 200
        assert len(rig.relay_rig.engine.heard) == 3
        assert (await rig.relay_rig.ask(post())).status == 200


async def test_an_exclusive_lease_counts_other_profiles(tmp_path: Path) -> None:
    """Requests for profiles beside it do not wait, and are told, also those in flight before."""
    may_end = asyncio.Event()
    async with lane_rigged(delayed(may_end), tmp_path) as rig:
        other = Routed(
            name="aeon",
            served=(),
            engine_name="aeon",
            endpoint=Endpoint(port=rig.relay_rig.engine.port),
        )
        rig.relay_rig.table.adopt({**rig.relay_rig.table.catalogue, "aeon": other})
        rig.relay_rig.table.take(
            replace(SERVES, standings=dict.fromkeys(("aeon", "genesis"), Standing.SERVING))
        )
        caller = await rig.relay_rig.connect()
        await caller.send(post({"model": "aeon", "messages": []}))
        await until(lambda: rig.relay_rig.engine.heard)
        async with rig.lane.lease(["genesis"], exclusive=True) as lease:
            traffic = lease.traffic()
            assert await anext(traffic) == 1
            may_end.set()
            assert (await caller.answer()).status == 200
            assert (await rig.relay_rig.ask(post({"model": "aeon"}))).status == 200
            assert await anext(traffic) == 2


@pytest.mark.parametrize("exclusive", [False, True])
async def test_an_operation_ends_a_lease(tmp_path: Path, *, exclusive: bool) -> None:
    """The holder is told why; requests that waited are routed by the new state."""
    async with (
        lane_rigged(answering(sized(b"{}")), tmp_path) as rig,
        rig.lane.lease(["genesis"], exclusive=exclusive) as lease,
    ):
        rig.relay_rig.table.hold(("genesis",))
        assert [n async for n in lease.traffic()] == []
        assert lease.lost == "an operation runs"
        caller = await rig.relay_rig.connect()
        await caller.send(own(lease))
        await until(lambda: len(rig.relay_rig.relay.hold_queue) == 1)
        rig.relay_rig.table.take(SERVES)
        assert (await caller.answer()).status == 200


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (replace(SERVES, held=frozenset({"genesis"})), "an operation runs"),
        (State(committed=("genesis",)), "genesis does not serve"),
    ],
)
async def test_a_lease_needs_profiles_that_serve(tmp_path: Path, state: State, why: str) -> None:
    """No lease is granted on a box that does not serve."""
    async with lane_rigged(answering(), tmp_path) as rig:
        rig.relay_rig.table.take(state)
        for exclusive in (False, True):
            with pytest.raises(LaneBusyError, match=why):
                await rig.lane.lease(["genesis"], exclusive=exclusive).__aenter__()


async def test_a_gateway_that_hands_over_ends_the_lease(tmp_path: Path) -> None:
    """The holder is told, and takes a new one from the next process."""
    async with (
        lane_rigged(answering(sized(b"{}")), tmp_path) as rig,
        rig.lane.lease(["genesis"], exclusive=True) as lease,
    ):
        rig.reservations.close("the gateway is being replaced")
        assert [n async for n in lease.traffic()] == []
        assert lease.lost == "the gateway is being replaced"
        assert (await rig.relay_rig.ask(post())).status == 200


def test_a_token_is_secret() -> None:
    """No two leases have the same token, and a request without one is no holder's."""
    one, other = GrantedLease(["m"]), GrantedLease(["m"])
    assert one.token != other.token
    assert one.owns(one.token.encode())
    assert not one.owns(other.token.encode())
    assert not one.owns(None)
    assert not one.owns(b"")
