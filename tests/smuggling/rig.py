"""The relay as it is, on a real socket, between a client and an engine that are not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.gateway.keys import KeyRing
from appliance.gateway.meter import Meter
from appliance.gateway.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.model.gateway import Limits, Routed, Standing, State
from appliance.model.profile import Endpoint
from tests.relay_port import relay_port
from tests.smuggling.engine import ScriptedEngine

LIMITS = Limits(body_bytes=1 << 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """Both ends, and the gateway between them."""

    engine: ScriptedEngine
    relay: Relay
    port: int
    """Port on which the gateway listens."""


def new_relay(engine_port: int, *, limits: Limits = LIMITS) -> Relay:
    """A gateway with one profile, ``m``, that serves."""
    routed = Routed(
        name="m", served=(), engine_name="m", endpoint=Endpoint(port=engine_port, socket=None)
    )
    table = RoutingTable({"m": routed})
    table.take(State(standings={"m": Standing.SERVING}, committed=("m",)))
    keys = KeyRing(Path("/nonexistent"))
    return Relay(router=table, observer=Meter(), key_checker=keys, limits=limits)


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    """Start every part of the rig, and stop it again."""
    engine = ScriptedEngine()
    relay = new_relay(await engine.start())
    try:
        with relay_port(relay) as port:
            yield Rig(engine=engine, relay=relay, port=port)
    finally:
        await relay.stop(0.0)
        await engine.stop()
