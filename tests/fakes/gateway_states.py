"""Profiles and states of a gateway for tests."""

from pathlib import Path

from appliance.gateway.keys import KeyRing
from appliance.gateway.meter import Meter
from appliance.gateway.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.gateway.supervisor_commands import RequestList
from appliance.model.gateway import Key, Refusal, Routed, Standing, State
from appliance.model.profile import Endpoint, Handling

ANA = Key(name="ana", may_switch=True)
BEA = Key(name="bea")
DOWN, STARTING, SERVING = Standing.DOWN, Standing.STARTING, Standing.SERVING


def routed(name: str, *, on_request: bool = False, port: int = 9000) -> Routed:
    return Routed(
        name=name,
        served=(f"{name}-chat",),
        engine_name=name,
        endpoint=Endpoint(port=port),
        handling=Handling(on_request=on_request),
    )


BOX = {name: routed(name) for name in ("aeon", "genesis")}
WILLING = BOX | {"genesis": routed("genesis", on_request=True)}
AEON = State(standings={"aeon": SERVING}, committed=("aeon",))
SWITCHING = State(
    standings={"aeon": SERVING},
    held=frozenset(BOX),
    target=("genesis",),
    committed=("aeon",),
)
GENESIS = State(standings={"genesis": SERVING}, committed=("genesis",))
FAILED = Refusal(status=503, code="switch_failed", message="no")


def idle_requests(table: RoutingTable) -> RequestList:
    """Return the list of the requests of a gateway that has none."""
    checker = KeyRing(Path("/nonexistent"))
    return RequestList(Relay(router=table, observer=Meter(), key_checker=checker))
