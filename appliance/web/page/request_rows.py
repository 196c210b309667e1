"""Requests of clients in flight and held, a row each."""

from dataclasses import dataclass
from typing import Final

from appliance.model.amounts import age
from appliance.wire.json_values import Json, number_in, objects_in, text_in

_APIS: Final = {"anthropic": "messages"}
"""Names of APIs that clients know by another one."""
_STATES: Final = {"held": "held", "sent": "waits for the engine", "tunnel": "websocket"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """One request; none of its texts are shown."""

    id: str
    profile: str
    api: str
    state: str
    age: str
    progress: str
    """Tokens or pieces so far; empty: nothing has come."""
    key: str
    """Name of the client's key; empty: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsView:
    """Requests, the oldest first."""

    rows: tuple[RequestLine, ...] = ()
    note: str = ""
    """Sentence where they are not known, or not all are shown; empty: they are."""


def requests_view(document: Json | None) -> RequestsView:
    """Return the view of the gateway's list; None: not known."""
    if document is None:
        return RequestsView(note="Not known: the gateway does not answer.")
    more = int(number_in(document, "left_off") or 0)
    return RequestsView(
        rows=tuple(_row(row) for row in objects_in(document, "requests")),
        note=f"{more} more" if more else "",
    )


def _row(row: Json) -> RequestLine:
    api, state = text_in(row, "api"), text_in(row, "state")
    return RequestLine(
        id=text_in(row, "id"),
        profile=text_in(row, "profile"),
        api=_APIS.get(api, api),
        state=_STATES.get(state, state),
        age=age(number_in(row, "age_s") or 0.0),
        progress=_progress(row),
        key=text_in(row, "key"),
    )


def _progress(row: Json) -> str:
    """Return the tokens where the answer tells them, else the pieces of a stream, else the bytes."""
    tokens, pieces = number_in(row, "tokens"), int(number_in(row, "pieces") or 0)
    if tokens is not None:
        return f"{tokens:.0f} tokens"
    if not pieces:
        return ""
    return f"{pieces} {'piece' if pieces == 1 else 'pieces'}"
