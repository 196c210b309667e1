"""What the gateway is told, put together from the box and what is kept about it."""

from appliance.domain.gateway import State
from appliance.domain.observed import Observed
from appliance.domain.operations import Operation, has_run_out
from appliance.domain.profile import Catalogue
from appliance.planning.routing.gateway_state import state_of
from appliance.supervisor.outside import Outside


def route_state(
    outside: Outside,
    catalogue: Catalogue,
    observed: Observed,
    operation: Operation | None = None,
    *,
    started: frozenset[str] = frozenset(),
) -> State:
    """What clients meet now; arguments as for `state_of`."""
    commitment = outside.commitment
    until = commitment.hold_until()
    return state_of(
        catalogue,
        observed,
        commitment.committed(),
        operation,
        started=started,
        # Its unit may start a moment later, and a client's request must not be faster.
        on_hold=until is not None and not has_run_out(until, outside.clock.unix_s()),
    )
