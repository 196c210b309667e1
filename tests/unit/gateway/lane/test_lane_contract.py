"""Contract of the port `ProbeLane`, on its fake and on a gateway behind lane.sock."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.model.errors import LaneBusyError
from appliance.system.lane_client import SocketProbeLane
from appliance.system.ports import ProbeLane
from appliance.wire.lane import LaneOutcome
from tests.fakes.engine_server import EVENTS, LAST, Talk, chunk, sized
from tests.fakes.probe_lane import FakeProbeLane, LaneAnswer, LaneRequest
from tests.unit.gateway.lane.lane_rig import BODY, CHAT, lane_rigged
from tests.unit.gateway.relay.rig import post
from tests.waiting import until

either = pytest.mark.parametrize("real", [True, False], ids=["adapter", "fake"])
PIECES = (b"data: 1\n\n", b"data: 2\n\n")


@dataclass
class LaneEnds:
    """The port, and the client whose requests come first."""

    lane: ProbeLane
    request: Callable[[], Awaitable[None]]
    """Send a request of a client, whole."""


@asynccontextmanager
async def lane_ends(folder: Path, *, real: bool, endless: bool = False) -> AsyncIterator[LaneEnds]:
    """A lane to an engine of two pieces; `endless`: it does not send the second one."""
    if not real:
        pauses = (0.0, 3600.0 if endless else 0.0)

        def answer(request: LaneRequest) -> LaneAnswer:
            if request.profile != "genesis":
                raise LaneBusyError(f"{request.profile} is not applied")
            return LaneAnswer(pieces=tuple(zip(pauses, PIECES, strict=True)))

        fake = FakeProbeLane(answer)

        async def request() -> None:
            await asyncio.sleep(0)
            fake.request_arrives()

        yield LaneEnds(fake, request)
        return

    async def script(talk: Talk) -> None:
        while b"stream" in (await talk.request()).body:
            await talk.say(EVENTS, chunk(PIECES[0]))
            await talk.delivered()
            if endless:
                await talk.reader.read()
            await talk.say(chunk(PIECES[1]), LAST)
        await talk.say(sized(b"{}"))

    async with lane_rigged(script, folder) as rig:

        async def ask() -> None:
            assert (await rig.relay_rig.ask(post())).status == 200

        yield LaneEnds(rig.lane, ask)


@either
async def test_a_response_comes_in_pieces(tmp_path: Path, *, real: bool) -> None:
    """Each piece has its time; the status and the outcome are known at the end."""
    async with (
        lane_ends(tmp_path, real=real) as ends,
        ends.lane.send("genesis", CHAT, BODY, timeout_s=20) as response,
    ):
        found = [pair async for pair in response.chunks()]
    assert tuple(piece for piece, _ in found) == PIECES
    assert response.sent_s <= found[0][1] <= found[1][1]
    assert (response.status, response.outcome, response.detail) == (200, LaneOutcome.ENDED, "")


@either
async def test_a_request_of_a_client_ends_the_response(tmp_path: Path, *, real: bool) -> None:
    """Pieces that have come stay; the outcome says that the response was ended for another."""
    async with (
        lane_ends(tmp_path, real=real, endless=True) as ends,
        ends.lane.send("genesis", CHAT, BODY, timeout_s=20) as response,
    ):
        chunks = response.chunks()
        assert (await anext(chunks))[0] == PIECES[0]
        await ends.request()
        assert [piece async for piece, _ in chunks] == []
        assert response.outcome is LaneOutcome.YIELDED
        assert response.detail


@either
async def test_a_deadline_ends_the_response(tmp_path: Path, *, real: bool) -> None:
    """A response without an end is cut after its time."""
    async with (
        lane_ends(tmp_path, real=real, endless=True) as ends,
        ends.lane.send("genesis", CHAT, BODY, timeout_s=0.2) as response,
    ):
        assert [piece async for piece, _ in response.chunks()] == [PIECES[0]]
        assert response.outcome is LaneOutcome.TOO_LONG


@either
async def test_a_lane_that_is_taken_is_busy(tmp_path: Path, *, real: bool) -> None:
    """One probe at a time, none during a lease, and one lease at a time."""
    async with lane_ends(tmp_path, real=real, endless=True) as ends:
        with pytest.raises(LaneBusyError, match="other is not applied"):
            await ends.lane.send("other", CHAT, BODY, timeout_s=20).__aenter__()
        async with ends.lane.send("genesis", CHAT, BODY, timeout_s=20) as response:
            with pytest.raises(LaneBusyError, match="another probe"):
                await ends.lane.send("genesis", CHAT, BODY, timeout_s=20).__aenter__()
            async with ends.lane.lease(["genesis"], exclusive=False):
                assert [piece async for piece, _ in response.chunks()] in ([], [PIECES[0]])
                assert response.outcome is LaneOutcome.YIELDED
                for taken in (
                    ends.lane.send("genesis", CHAT, BODY, timeout_s=20),
                    ends.lane.lease(["genesis"], exclusive=True),
                ):
                    with pytest.raises(LaneBusyError, match="lease"):
                        await taken.__aenter__()


@either
async def test_a_lease_tells_of_requests(tmp_path: Path, *, real: bool) -> None:
    """The number grows with the requests of clients; the lease has a token."""
    async with (
        lane_ends(tmp_path, real=real) as ends,
        ends.lane.lease(["genesis"], exclusive=False) as lease,
    ):
        assert lease.token
        traffic = lease.traffic()
        for number in (1, 2):
            await ends.request()
            assert await anext(traffic) == number
        assert (lease.requests, lease.lost) == (2, None)


async def test_engines_that_do_not_answer_are_shown_so_as_long_as_somebody_says_it(
    tmp_path: Path,
) -> None:
    """Each connection says so of its profiles until its end, the agent's death too; requests go on."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(sized(b"{}"))

    async with lane_rigged(script, tmp_path) as rig:
        table = rig.relay_rig.table

        def state() -> str:
            found: str = json.loads(table.models(None))["data"][0]["state"]
            return found

        assert state() == "serving"
        tellers = [
            asyncio.create_task(rig.lane.show_unresponsive(names))
            for names in (["genesis"], ["genesis", "aeon"])
        ]
        await until(lambda: state() == "unresponsive")
        assert (await rig.relay_rig.ask(post())).status == 200
        for teller, left in zip(tellers, ("unresponsive", "serving"), strict=True):
            teller.cancel()
            await asyncio.gather(teller, return_exceptions=True)
            await until(lambda left=left: state() == left)  # type: ignore[misc]  # a default


async def test_a_gateway_that_is_away_shows_nothing(tmp_path: Path) -> None:
    """The call returns at once, so that its caller tells the gateway again later."""
    await SocketProbeLane(tmp_path / "lane.sock").show_unresponsive(["genesis"])


async def test_leaving_the_fake_frees_it() -> None:
    """A response that is left early does not keep the fake busy, as with the gateway."""
    fake = FakeProbeLane(lambda _: LaneAnswer(pieces=[(3600.0, b"")]))
    for _ in range(2):
        async with fake.send("genesis", CHAT, BODY, timeout_s=20):
            pass
    assert len(fake.requests) == 2


async def test_a_lease_of_the_fake_can_be_lost() -> None:
    """The fake tells the end of a lease in the order of its requests."""
    fake = FakeProbeLane(lambda _: LaneAnswer())
    async with fake.lease(["genesis"], exclusive=True) as lease:
        fake.request_arrives()
        fake.break_lease("an operation runs")
        assert [n async for n in lease.traffic()] == [1]
        assert lease.lost == "an operation runs"
    await until(lambda: fake.leases == [(("genesis",), True)])
