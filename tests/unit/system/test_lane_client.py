"""Client of lane.sock against gateways that break the protocol; what works is in the gateway's lane."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.model.errors import LaneBusyError
from appliance.system.lane_client import SocketProbeLane
from appliance.wire.lane import (
    MAX_EVENT_BYTES,
    LaneAdmitted,
    LaneBusy,
    LaneData,
    LaneEnd,
    LaneHead,
    LaneLeased,
    LaneOutcome,
    LaneTraffic,
    encode_lane_event,
)

ADMITTED = encode_lane_event(LaneAdmitted(1.5))
DATA = encode_lane_event(LaneHead(200)) + encode_lane_event(LaneData("a", 2.5))
LEASED = encode_lane_event(LaneLeased("token"))
NOT_EVENTS = [b"", b"\n", b"{}\n", b'{"event":"new"}\n', b"x" * (MAX_EVENT_BYTES + 1), b'{"event"']


@asynccontextmanager
async def lane_to(
    folder: Path, said: bytes, *, hangs: bool = False
) -> AsyncIterator[SocketProbeLane]:
    """A lane whose gateway says this to each client, and then leaves or hangs."""
    left = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(said)
        if hangs:
            await left.wait()
        writer.close()

    server = await asyncio.start_unix_server(talk, folder / "lane.sock")
    try:
        yield SocketProbeLane(folder / "lane.sock", patience_s=0.1 if hangs else 20.0)
    finally:
        left.set()
        server.close()


@pytest.mark.parametrize("said", NOT_EVENTS)
async def test_without_a_first_event_nothing_was_sent(tmp_path: Path, said: bytes) -> None:
    """A gateway that says nothing, or nothing that can be read, is one that is away."""
    async with lane_to(tmp_path, said) as lane:
        for entered in (lane.send("m", "/", None, timeout_s=1), lane.lease(["m"], exclusive=True)):
            with pytest.raises(LaneBusyError, match="the gateway does not answer"):
                await entered.__aenter__()


async def test_a_gateway_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    """A probe waits for the first event for some seconds, and so does a shared lease."""
    async with lane_to(tmp_path, b"", hangs=True) as lane:
        for entered in (lane.send("m", "/", None, timeout_s=1), lane.lease(["m"], exclusive=False)):
            with pytest.raises(LaneBusyError, match="the gateway does not answer"):
                await entered.__aenter__()


@pytest.mark.parametrize("said", NOT_EVENTS)
async def test_a_response_that_breaks_off_has_failed(tmp_path: Path, said: bytes) -> None:
    """Pieces that came before stay; an incomplete response never passes for a complete one."""
    async with (
        lane_to(tmp_path, ADMITTED + DATA + said) as lane,
        lane.send("m", "/", None, timeout_s=20) as response,
    ):
        assert [pair async for pair in response.chunks()] == [(b"a", 2.5)]
        assert (response.sent_s, response.status) == (1.5, 200)
        assert (response.outcome, response.detail) == (
            LaneOutcome.FAILED,
            "the gateway has closed the connection",
        )


async def test_a_response_of_a_gateway_that_hangs_ends(tmp_path: Path) -> None:
    """The client has a deadline of its own, behind that of the gateway."""
    async with (
        lane_to(tmp_path, ADMITTED + DATA, hangs=True) as lane,
        lane.send("m", "/", None, timeout_s=0.05) as response,
    ):
        assert [pair async for pair in response.chunks()] == [(b"a", 2.5)]
        assert response.outcome is LaneOutcome.FAILED


@pytest.mark.parametrize("event", [LaneLeased("token"), LaneTraffic(1), LaneBusy("late")])
async def test_an_event_out_of_place_ends_a_response(
    tmp_path: Path, event: LaneLeased | LaneTraffic | LaneBusy
) -> None:
    """Events of a lease, or a refusal after the request was sent, are a fault of the gateway."""
    async with (
        lane_to(tmp_path, ADMITTED + DATA + encode_lane_event(event)) as lane,
        lane.send("m", "/", None, timeout_s=20) as response,
    ):
        assert [pair async for pair in response.chunks()] == [(b"a", 2.5)]
        assert response.outcome is LaneOutcome.FAILED


async def test_a_lease_that_is_not_granted_raises(tmp_path: Path) -> None:
    """A lease that fails at once is refused with the gateway's reason."""
    said = encode_lane_event(LaneEnd(LaneOutcome.FAILED, "names is no list of profiles"))
    async with lane_to(tmp_path, said) as lane:
        with pytest.raises(LaneBusyError, match="names is no list"):
            await lane.lease([], exclusive=False).__aenter__()


@pytest.mark.parametrize("said", [*NOT_EVENTS, ADMITTED])
async def test_a_lease_ends_with_its_gateway(tmp_path: Path, said: bytes) -> None:
    """A lease is lost when the gateway leaves, or says what it cannot mean."""
    traffic = encode_lane_event(LaneTraffic(2))
    async with (
        lane_to(tmp_path, LEASED + traffic + said) as lane,
        lane.lease(["m"], exclusive=False) as lease,
    ):
        assert lease.token == "token"  # noqa: S105 - of a test
        assert [n async for n in lease.traffic()] == [2]
        assert lease.lost == "the gateway has closed the connection"
