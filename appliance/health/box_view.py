"""View of the box: what the health agent reads in the supervisor's status document.

A document of another release may have further keys, or lack some; one whose keys have other types
is refused as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from appliance.domain.measurements import TrafficSums
from appliance.domain.profile import Applied, Catalogue
from appliance.protocol.json_dataclasses import from_json


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


NOT_CONNECTED: Final = BoxView(connected=False)
"""View while the supervisor does not answer: nothing is known to serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Profile:
    name: str
    state: str
    mark: str | None = None
    since_unix_s: float | None = None
    main_pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traffic:
    name: str
    decoded_tokens: int = 0
    decode_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gateway:
    state: str
    profiles: tuple[_Traffic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    profiles: tuple[_Profile, ...]
    hold: Mapping[str, object] | None = None
    run: Mapping[str, object] | None = None
    operation: Mapping[str, object] | None = None
    gateway: _Gateway | None = None


def view_of(document: object, catalogue: Catalogue, now_unix_s: float) -> BoxView:
    """Return the view that a status document gives. Raises `JsonValueError`.

    Args:
        document: The status document, as JSON was decoded.
        catalogue: The applied profiles.
        now_unix_s: Time of the document.
    """
    read = from_json(_Document, document)
    hold = read.hold is not None or read.run is not None
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
            )
            for row in read.profiles
        },
        operation=read.operation is not None,
        hold=hold,
        traffic=_traffic(read.gateway, now_unix_s),
    )


def _traffic(gateway: _Gateway | None, now_unix_s: float) -> Mapping[str, TrafficSums]:
    if gateway is None or gateway.state != "up":
        return {}
    return {
        row.name: TrafficSums(
            unix_s=now_unix_s,
            output_tokens=row.decoded_tokens,
            decode_s=row.decode_s,
            prompt_tokens=row.prompt_tokens,
            cached_tokens=row.cached_tokens,
        )
        for row in gateway.profiles
    }
