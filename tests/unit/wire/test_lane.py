"""Codec of lane.sock."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.wire.lane import (
    MAX_EVENT_BYTES,
    PIECE_BYTES,
    LaneAdmitted,
    LaneBusy,
    LaneCommand,
    LaneData,
    LaneEnd,
    LaneEvent,
    LaneHead,
    LaneLeaseCommand,
    LaneLeased,
    LaneOutcome,
    LaneProbeCommand,
    LaneTraffic,
    decode_lane_command,
    decode_lane_event,
    encode_lane_command,
    encode_lane_event,
)

PROBE = {"verb": "probe", "profile": "m", "path": "/v1/x", "body": {"n": 1}, "timeout_s": 5}
LEASE = {"verb": "lease", "names": ["m"], "exclusive": True}


@pytest.mark.parametrize(
    "command",
    [
        LaneProbeCommand("m", "/v1/chat/completions", {"messages": [{"text": "ä"}]}, 12.5),
        LaneProbeCommand("m", "/metrics", None, 1.0),
        LaneLeaseCommand(("m", "other"), exclusive=True),
        LaneLeaseCommand(("m",), exclusive=False),
    ],
)
def test_a_command_is_one_line(command: LaneCommand) -> None:
    """A command comes back as it was sent, in one line."""
    line = encode_lane_command(command)
    assert line.index(b"\n") == len(line) - 1
    assert decode_lane_command(line) == command


@pytest.mark.parametrize(
    "event",
    [
        LaneBusy("2 requests in flight"),
        LaneAdmitted(12.25),
        LaneHead(200),
        LaneData("data: {}\n\n", 13.5),
        *(LaneEnd(outcome, "why") for outcome in LaneOutcome),
        LaneEnd(LaneOutcome.ENDED),
        LaneLeased("secret"),
        LaneTraffic(3),
    ],
)
def test_an_event_is_one_line(event: LaneEvent) -> None:
    """An event comes back as it was sent, in one line."""
    line = encode_lane_event(event)
    assert line.index(b"\n") == len(line) - 1
    assert decode_lane_event(line) == event


def test_the_events_have_the_names_of_the_protocol() -> None:
    """An end is told by its outcome: another client reads these names."""
    ends = [json.loads(encode_lane_event(LaneEnd(outcome))) for outcome in LaneOutcome]
    assert ends == [{"event": name} for name in ("end", "yielded", "failed", "too-long")]


@pytest.mark.parametrize("character", ["\0", "\x7f", "\uffff", "\U0001f600", "a"])
def test_the_largest_piece_fits_into_an_event(character: str) -> None:
    """The longest event has room for a piece whose every character is escaped."""
    text = character * (PIECE_BYTES // len(character.encode()))
    assert len(encode_lane_event(LaneData(text, 1e9 / 3))) <= MAX_EVENT_BYTES


@given(st.binary())
def test_any_line_is_a_command_or_refused(line: bytes) -> None:
    """No line of bytes raises anything but the error that is promised."""
    with contextlib.suppress(ValueError):
        decode_lane_command(line)
    with contextlib.suppress(ValueError):
        decode_lane_event(line)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"[]", "object"),
        (b"{", "JSON"),
        (b"[" * 100_000, "nested"),
        ({"verb": "steal"}, "verb: invalid value"),
        ({}, "verb is missing"),
        (PROBE | {"profile": "../m"}, "profile: expected"),
        (PROBE | {"profile": None}, "profile: expected"),
        (PROBE | {"path": "v1"}, "path"),
        (PROBE | {"path": "/v1 HTTP/1.1\r\nX: y"}, "path"),
        (PROBE | {"path": "/v1\n"}, "path"),
        (PROBE | {"path": "/" + "v" * 2000}, "path"),
        (PROBE | {"path": 1}, "path"),
        (PROBE | {"body": "text"}, "body"),
        (PROBE | {"timeout_s": 0}, "timeout_s"),
        (PROBE | {"timeout_s": 601}, "timeout_s"),
        (PROBE | {"timeout_s": "5"}, "timeout_s"),
        (PROBE | {"timeout_s": float("nan")}, "not JSON"),
        (LEASE | {"names": []}, "names"),
        (LEASE | {"names": "m"}, "names"),
        (LEASE | {"names": ["m", 1]}, "names.1.: expected"),
        (LEASE | {"names": ["m"] * 65}, "names"),
    ],
)
def test_a_bad_command_is_refused(line: bytes | dict[str, object], fault: str) -> None:
    """The fault of a line is told, and nothing is done."""
    raw = line if isinstance(line, bytes) else json.dumps(line).encode()
    with pytest.raises(ValueError, match=fault):
        decode_lane_command(raw)


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"event":"gone"}',
        b'{"event":"head"}',
        b'{"event":"data"}',
        b'{"event":"head","status":1e999}',
        b"\xff",
        b"1",
    ],
)
def test_a_line_that_is_no_event_is_refused(line: bytes) -> None:
    """A client does not go on with an event that it cannot read."""
    with pytest.raises(ValueError, match=r".+"):
        decode_lane_event(line)
