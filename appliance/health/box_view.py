"""View of the box: what the health agent reads in the supervisor's status document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from appliance.model.measurements import TrafficSums
from appliance.model.profile import Applied, Catalogue
from appliance.model.status import (
    EndedOperationRow,
    OperationRow,
    ProfileRow,
    StatusDocument,
    TrafficRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileView:
    """One profile of the box."""

    name: str
    applied: Applied | None
    """None: the profile is not among the applied ones that this process has read."""
    serving: bool
    started_unix_s: float | None
    """Time since which its unit is in its state; None: not known."""
    main_pid: int | None
    """Main process of its unit; None: it has none."""
    mark: str | None
    """Mark of the profile; None: not known."""
    held: bool
    """Whether a hold or an operator's command keeps requests from it."""
    state: str = ""
    """As `ProfileState` of the status document; empty: not told."""
    note: str = ""
    """Sentence about the state; empty: none."""
    stalled: bool = False
    """Whether its engine has requests and makes no progress."""
    needs_bytes: int | None = None
    """Memory of GPUs that it needs; None: not known."""
    in_flight: int | None = None
    """Requests that the gateway has at its engine; None: the gateway did not answer, as for the next."""
    quiet_s: float | None = None
    """Time in which its engine has owed bytes and sent none; None: it owes none."""
    answer_bytes: int | None = None
    """Bytes that its engine has sent in answers since the gateway's start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxView:
    """The box as the supervisor described it last."""

    connected: bool
    """Whether the supervisor describes it now."""
    profiles: Mapping[str, ProfileView] = field(default_factory=dict)
    hold: bool = False
    """Whether a hold is in force, or a command runs in place of models."""
    traffic: Mapping[str, TrafficSums] = field(default_factory=dict)
    """Sums of real traffic since the gateway's start, by profile; empty: the gateway did not
    answer."""
    committed: frozenset[str] | None = None
    """Profiles that a boot starts; None: not told."""
    running: OperationRow | None = None
    """Operation that runs; None: none."""
    ended: EndedOperationRow | None = None
    """Operation that has ended last; None: none is on record."""
    watch_marks: Mapping[str, str] = field(default_factory=dict)
    """Marks of the `[[watch]]` entries, by name."""
    read_s: float = float("-inf")
    """Monotonic time at which the document came."""


NOT_CONNECTED: Final = BoxView(connected=False)
"""View while the supervisor does not answer: nothing is known to serve."""


def view_of(
    document: StatusDocument, catalogue: Catalogue, now_unix_s: float, now_s: float = 0.0
) -> BoxView:
    """Return the view that a status document gives.

    Args:
        document: The supervisor's.
        catalogue: The applied profiles.
        now_unix_s: Time of the document.
        now_s: The same on the monotonic clock.
    """
    held = document.hold is not None or document.run is not None
    gateway = document.gateway
    is_up = gateway is not None and gateway.state == "up"
    flows = {row.name: row for row in gateway.profiles} if gateway is not None and is_up else {}
    return BoxView(
        connected=True,
        profiles={
            row.name: _profile(row, catalogue.get(row.name), flows.get(row.name), held=held)
            for row in document.profiles
        },
        hold=held,
        traffic={name: _sums(flow, now_unix_s) for name, flow in flows.items()},
        committed=frozenset(document.committed),
        running=document.operation,
        ended=document.last_operation,
        watch_marks={row.name: row.mark for row in document.watches},
        read_s=now_s,
    )


def _profile(
    row: ProfileRow, applied: Applied | None, flow: TrafficRow | None, *, held: bool
) -> ProfileView:
    return ProfileView(
        name=row.name,
        applied=applied,
        serving=row.state == "serving",
        started_unix_s=row.since_unix_s,
        main_pid=row.main_pid,
        mark=row.mark,
        held=held,
        state=row.state,
        note=row.note or "",
        stalled=row.stall is not None,
        needs_bytes=None if row.memory is None else row.memory.need.vram.bytes,
        in_flight=None if flow is None else flow.in_flight,
        quiet_s=None if flow is None else flow.quiet_s,
        answer_bytes=None if flow is None else flow.bytes,
    )


def _sums(flow: TrafficRow, now_unix_s: float) -> TrafficSums:
    return TrafficSums(
        unix_s=now_unix_s,
        output_tokens=flow.decoded_tokens,
        decode_s=flow.decode_s,
        prompt_tokens=flow.prompt_tokens,
        cached_tokens=flow.cached_tokens,
    )
