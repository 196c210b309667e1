"""A relay with a lane, before an engine that a test scripts, and the port of the lane."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.gateway.lane import LaneReservations
from appliance.gateway.lane_server import LaneServer
from appliance.model.gateway import Limits, Routed
from appliance.system.lane_client import SocketProbeLane
from appliance.system.ports import LaneResponse
from tests.fakes.engine_server import Script
from tests.unit.gateway.relay.rig import QUICK, Rig, rigged

BODY = {"messages": [{"role": "user", "content": "salt"}], "stream": True}
CHAT = "/v1/chat/completions"


@dataclass
class LaneRig:
    """Relay with a lane, and the client of the lane."""

    relay_rig: Rig
    reservations: LaneReservations
    lane: SocketProbeLane
    path: Path
    replaced: bool = False
    """Whether a gateway process that was replaced still lives."""


async def whole(response: LaneResponse) -> bytes:
    """Return the body of a response, after its end."""
    return b"".join([piece async for piece, _ in response.chunks()])


@asynccontextmanager
async def lane_rigged(
    script: Script,
    folder: Path,
    *,
    limits: Limits = QUICK,
    profile: Routed | None = None,
    drain_s: float = 20.0,
) -> AsyncIterator[LaneRig]:
    """A relay whose one profile, genesis, serves, and whose lane is open."""
    async with rigged(script, limits=limits, profile=profile) as rig:
        found: LaneRig
        reservations = LaneReservations(
            rig.relay, rig.table, limits, replaced=lambda: found.replaced
        )
        server = LaneServer(reservations, rig.relay, rig.table, drain_s=drain_s)
        path = folder / "lane.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            running = [
                asyncio.create_task(server.serve(listener)),
                asyncio.create_task(server.follow()),
            ]
            found = LaneRig(rig, reservations, SocketProbeLane(path), path)
            reservations.open()
            try:
                yield found
            finally:
                reservations.close("the test ends")
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
                await server.close()
