"""View of the box: what the health agent reads in the supervisor's status document.

A document of another release may have further keys, or lack some; one whose keys have other types
is refused as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from appliance.alerts.snapshot import EndedOperation, OperationLook
from appliance.model.measurements import TrafficSums
from appliance.model.operations import Kind
from appliance.model.profile import Applied, Catalogue
from appliance.wire.typed_json import from_json


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
    operation: bool = False
    """Whether an operation runs."""
    hold: bool = False
    """Whether a hold is in force, or a command runs in place of models."""
    traffic: Mapping[str, TrafficSums] = field(default_factory=dict)
    """Sums of real traffic since the gateway's start, by profile; empty: the gateway did not
    answer."""
    committed: frozenset[str] | None = None
    """Profiles that a boot starts; None: not told."""
    running: OperationLook | None = None
    """Operation that runs; None: none."""
    ended: EndedOperation | None = None
    """Operation that has ended last; None: none is on record."""
    watch_marks: Mapping[str, str] = field(default_factory=dict)
    """Marks of the `[[watch]]` entries, by name."""
    read_s: float = float("-inf")
    """Monotonic time at which the document came."""


_STARTING: Final = frozenset({Kind.SWITCH, Kind.START, Kind.RESTART, Kind.REPAIR})
NOT_CONNECTED: Final = BoxView(connected=False)
"""View while the supervisor does not answer: nothing is known to serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Profile:
    name: str
    state: str
    mark: str | None = None
    since_unix_s: float | None = None
    main_pid: int | None = None
    note: str | None = None
    stall: Mapping[str, object] | None = None
    memory: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traffic:
    name: str
    in_flight: int = 0
    quiet_s: float | None = None
    bytes: int | None = None
    decoded_tokens: int = 0
    decode_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gateway:
    state: str
    profiles: tuple[_Traffic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    id: int = 0
    kind: str = ""
    target: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    phase: str = ""
    phase_s: float = 0.0
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    id: int = 0
    kind: str = ""
    target: tuple[str, ...] = ()
    outcome: str = ""
    failed: bool = False
    finished_unix_s: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    name: str
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    profiles: tuple[_Profile, ...]
    committed: tuple[str, ...] | None = None
    hold: Mapping[str, object] | None = None
    run: Mapping[str, object] | None = None
    operation: _Operation | None = None
    last_operation: _Ended | None = None
    gateway: _Gateway | None = None
    watches: tuple[_Watch, ...] = ()


def view_of(
    document: object, catalogue: Catalogue, now_unix_s: float, now_s: float = 0.0
) -> BoxView:
    """Return the view that a status document gives. Raises `JsonValueError`.

    Args:
        document: The status document, as JSON was decoded.
        catalogue: The applied profiles.
        now_unix_s: Time of the document.
        now_s: The same on the monotonic clock.
    """
    read = from_json(_Document, document)
    hold = read.hold is not None or read.run is not None
    flows = _flows(read.gateway)
    return BoxView(
        connected=True,
        profiles={
            row.name: ProfileView(
                name=row.name,
                applied=catalogue.get(row.name),
                serving=row.state == "serving",
                started_unix_s=row.since_unix_s,
                main_pid=row.main_pid,
                mark=row.mark,
                held=hold,
                state=row.state,
                note=row.note or "",
                stalled=row.stall is not None,
                needs_bytes=_needs_bytes(row.memory),
                in_flight=flows[row.name].in_flight if row.name in flows else None,
                quiet_s=flows[row.name].quiet_s if row.name in flows else None,
                answer_bytes=flows[row.name].bytes if row.name in flows else None,
            )
            for row in read.profiles
        },
        operation=read.operation is not None,
        hold=hold,
        traffic=_traffic(flows, now_unix_s),
        committed=None if read.committed is None else frozenset(read.committed),
        running=None if read.operation is None else _running(read.operation),
        ended=None if read.last_operation is None else _ended(read.last_operation),
        watch_marks={row.name: row.mark for row in read.watches},
        read_s=now_s,
    )


def _running(row: _Operation) -> OperationLook:
    return OperationLook(
        id=row.id,
        kind=row.kind,
        target=row.target if row.kind in _STARTING else (),
        profiles=row.profiles or row.target,
        phase=row.phase,
        phase_s=row.phase_s,
        deadline_s=row.deadline_s,
    )


def _ended(row: _Ended) -> EndedOperation:
    return EndedOperation(
        id=row.id,
        kind=row.kind,
        target=_first(row.target),
        outcome=row.outcome,
        failed=row.failed,
        ended_unix_s=row.finished_unix_s,
        text=row.message,
    )


def _first(names: tuple[str, ...]) -> str:
    """Return the first of the profiles that were asked for; empty: none was."""
    return names[0] if names else ""


def _needs_bytes(memory: Mapping[str, object] | None) -> int | None:
    """Return the memory of GPUs that a profile needs, as its row says; None: it does not."""
    found: object = memory
    for key in ("need", "vram", "bytes"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if type(found) is int else None


def _flows(gateway: _Gateway | None) -> Mapping[str, _Traffic]:
    """Return the rows of profiles; empty: the gateway did not answer."""
    if gateway is None or gateway.state != "up":
        return {}
    return {row.name: row for row in gateway.profiles}


def _traffic(flows: Mapping[str, _Traffic], now_unix_s: float) -> Mapping[str, TrafficSums]:
    return {
        row.name: TrafficSums(
            unix_s=now_unix_s,
            output_tokens=row.decoded_tokens,
            decode_s=row.decode_s,
            prompt_tokens=row.prompt_tokens,
            cached_tokens=row.cached_tokens,
        )
        for row in flows.values()
    }
