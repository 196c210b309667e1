"""Parser of server-sent events."""

import pytest

from appliance.speed.event_stream import DONE, EventStreamParser

STREAM = (
    b': comment\n\ndata: {"a":1}\r\n\r\nevent: x\nid: 7\ndata:{"b":2}\n\n'
    b"data: one\ndata: two\n\nretry: 5\n\ndata: [DONE]\n\n"
)
EVENTS = [b'{"a":1}', b'{"b":2}', b"one\ntwo", DONE]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, len(STREAM)])
def test_events_are_the_same_however_the_stream_is_cut(size: int) -> None:
    """Comments and other fields are left out, and lines of one event are joined."""
    parser = EventStreamParser()
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS
    assert not parser.overflowed


def test_an_event_without_its_empty_line_has_not_ended() -> None:
    """The data of an event is returned with the line feed that ends it."""
    parser = EventStreamParser()
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"\n") == [b"a"]


def test_a_stream_for_ever_is_given_up() -> None:
    """Beyond its limit the response overflows, and no event of it is returned any more."""
    parser = EventStreamParser(most_bytes=20)
    assert parser.feed(b"data: a\n\ndata: b\n\n") == [b"a", b"b"]
    assert parser.feed(b"data: c\n\n") == []
    assert parser.overflowed
    assert parser.feed(b"\n\n") == []


def test_a_line_for_ever_is_given_up() -> None:
    """A line without an end is bounded by the same limit."""
    parser = EventStreamParser(most_bytes=1000)
    for _ in range(1001):
        assert parser.feed(b"a") == []
    assert parser.overflowed
