"""Everything that the services act on, as one thing to hand around."""

from dataclasses import dataclass

from appliance.ports import (
    Backend,
    Clock,
    Commitment,
    Gateway,
    Host,
    Peaks,
    RunTickets,
    Store,
    Units,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The ports."""

    units: Units
    backend: Backend
    gateway: Gateway
    host: Host
    commitment: Commitment
    store: Store
    peaks: Peaks
    tickets: RunTickets
    clock: Clock
