"""Format of the gateway's state on gateway.sock and in the gateway's own file."""

from collections.abc import Mapping

from appliance.domain.gateway import Standing, State
from appliance.domain.names import is_profile_name


def encode_state(state: State) -> dict[str, object]:
    """As it is sent and kept, for JSON."""
    return {
        "standings": {name: standing.value for name, standing in state.standings.items()},
        "held": sorted(state.held),
        "target": list(state.target),
        "committed": list(state.committed),
        "paused": state.paused,
    }


def decode_state(document: object) -> State:
    """The reverse. Raises `ValueError`."""
    if not isinstance(document, Mapping):
        raise ValueError("a state is no object")  # noqa: TRY004 - whatever is wrong is one thing
    standings = document.get("standings")
    if not isinstance(standings, Mapping):
        raise ValueError("standings is no object")  # noqa: TRY004
    return State(
        standings={_name(n): Standing(s) for n, s in standings.items()},
        held=frozenset(decode_names(document, "held")),
        target=decode_names(document, "target"),
        committed=decode_names(document, "committed"),
        paused=document.get("paused") is True,
    )


def decode_names(document: Mapping[str, object], key: str) -> tuple[str, ...]:
    """The profile names at `key`. Raises `ValueError`."""
    names = document.get(key)
    if not isinstance(names, list):
        raise ValueError(f"{key} is no list")  # noqa: TRY004
    return tuple(_name(name) for name in names)


def _name(name: object) -> str:
    if not isinstance(name, str) or not is_profile_name(name):
        raise ValueError(f"{name!r:.60} is no profile")
    return name
