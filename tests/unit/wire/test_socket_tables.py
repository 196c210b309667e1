"""Tables of the sockets that hold conversations: what every one of them keeps."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.errors import BadRequestError
from appliance.model.measurements import EventKind
from appliance.model.record import Record
from appliance.model.status import StatusDocument
from appliance.model.words import Series
from appliance.wire.control_requests import CONTROL
from appliance.wire.conversation import (
    ErrorEvent,
    HelloEvent,
    ResultEvent,
    SocketTable,
    UnknownEvent,
    parse_request,
)
from appliance.wire.health_socket import HEALTH
from appliance.wire.helpers import AUDIT, CHECK, NOTIFY
from appliance.wire.json_values import Json
from appliance.wire.status_socket import STATUS
from appliance.wire.token_socket import TOKEN
from appliance.wire.view_socket import VIEW

TABLES: Final[Mapping[str, SocketTable[Any, Any]]] = {
    "audit": AUDIT,
    "check": CHECK,
    "control": CONTROL,
    "health": HEALTH,
    "notify": NOTIFY,
    "status": STATUS,
    "token": TOKEN,
    "view": VIEW,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
VALUES: Final[Mapping[Any, object]] = {
    Json: {"a": [1, None]},
    Json | None: {"a": [1, None]},
    Mapping[str, float]: {"commit": 1.5},
    EventKind: EventKind.REGRESSION,
    StatusDocument: StatusDocument(host="garage"),
    Series | None: Series.DECODE,
    bool: True,
    float: 2.5,
    float | None: 3.5,
    int: 7,
    str: "text",
    str | None: "text",
    tuple[str, ...]: ("a", "b"),
}
"""Value of each annotation that is no default."""


def forms(table: SocketTable[Any, Any]) -> Iterator[type[Record]]:
    """Every type of event of a table that it reads by annotation."""
    yield HelloEvent
    yield from table.events.values()
    yield from table.results.values()


every = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


@every
def test_every_event_arrives_as_it_was_sent(table: SocketTable[Any, Any]) -> None:
    """Each event of the table has a codec for each of its fields, and one line."""
    for form in forms(table):
        event = form(**{field: VALUES[kind] for field, kind in get_type_hints(form).items()})
        line = table.encode_event(event)
        assert line.count(b"\n") == 1
        found = table.decode_event(line)
        assert (type(found), found) == (form, event)


@every
def test_every_field_of_a_request_has_a_reader(table: SocketTable[Any, Any]) -> None:
    """Each request can be decoded: without arguments it is made or refused, never an error."""
    for verb, action, form in table.requests:
        with contextlib.suppress(BadRequestError):
            assert type(table.decode_request(verb, {"action": action})) is form
        assert form.__doc__


@every
@given(data=st.data())
def test_every_object_is_a_request_or_a_bad_one(
    table: SocketTable[Any, Any], data: st.DataObject
) -> None:
    """Any arguments are decoded to a request, which can be sent again, or to `BadRequestError`."""
    fields = {"name"}.union(*(form.__match_args__ for _, _, form in table.requests))
    verb = data.draw(st.sampled_from(table.verbs))
    args = data.draw(st.dictionaries(st.sampled_from(sorted(fields)) | st.text(), JSON))
    try:
        request = table.decode_request(verb, args)
    except BadRequestError:
        return
    document = parse_request(table.encode_request(request))
    assert table.decode_request(*table.verb_of(document)) == request


@every
@given(data=st.data())
def test_every_object_with_a_name_is_an_event(
    table: SocketTable[Any, Any], data: st.DataObject
) -> None:
    """Any fields are decoded to an event that can be sent again."""
    fields = {field for form in forms(table) for field in form.__match_args__}
    name = data.draw(st.sampled_from(["result", "error", "hello", "weather", *table.events]))
    more = data.draw(st.dictionaries(st.sampled_from(sorted(fields)), JSON))
    line = json.dumps({**more, "event": name}).encode()
    with contextlib.suppress(ValueError):  # a number that JSON does not know, such as NaN
        event = table.decode_event(line)
        assert repr(table.decode_event(table.encode_event(event))) == repr(event)


@every
def test_every_table_knows_the_events_of_all_sockets(table: SocketTable[Any, Any]) -> None:
    """The greeting, the plain result, the refusal and an unknown event are the same everywhere."""
    for event in (
        HelloEvent(),
        ResultEvent(1, "done", "text", {"more": [1]}),
        ErrorEvent("busy", "later"),
        UnknownEvent("weather"),
    ):
        found = table.decode_event(table.encode_event(event))
        assert (type(found), found) == (type(event), event)


@every
def test_a_foreign_version_is_told_what_to_restart(table: SocketTable[Any, Any]) -> None:
    """Without a common version the refusal names both versions and the unit of this server."""
    document = {"protocol": {"min": 2, "max": 3}, "version": "9.0.0"}
    with pytest.raises(BadRequestError, match=rf"9\.0\.0.*systemctl restart {table.unit}$"):
        table.common_protocol(document)


@every
def test_an_unknown_verb_has_a_hint(table: SocketTable[Any, Any]) -> None:
    """A verb that is mistyped is refused with the one that was meant."""
    verb = table.verbs[0]
    with pytest.raises(BadRequestError, match=f'the {table.server} .* did you mean "{verb}"'):
        table.verb_of({"verb": verb + "x"})
