"""Profiles and states of a gateway for tests."""

from appliance.domain.gateway import Key, Refusal, Routed, Standing, State
from appliance.domain.profile import Endpoint

ANA = Key(name="ana", may_switch=True)
BEA = Key(name="bea")
DOWN, STARTING, SERVING = Standing.DOWN, Standing.STARTING, Standing.SERVING


def routed(name: str, *, on_request: bool = False, port: int = 9000) -> Routed:
    return Routed(
        name=name,
        served=(f"{name}-chat",),
        engine_name=name,
        endpoint=Endpoint(port=port),
        on_request=on_request,
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
