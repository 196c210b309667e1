"""Codec of gateway.sock."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.gateway import Standing, State
from appliance.wire.gateway import (
    CommandRefused,
    CutCommand,
    DrainCommand,
    GatewayAnswer,
    GatewayCommand,
    HoldCommand,
    ReleaseCommand,
    ReloadCommand,
    RequestsCommand,
    RouteCommand,
    StatsCommand,
    decode_answer,
    decode_command,
    encode_answer,
    encode_command,
)

STATE = State(
    standings={"a": Standing.SERVING},
    held=frozenset({"b"}),
    target=("b",),
    paused=True,
    lent=True,
    failed=frozenset({"c"}),
    crashed=frozenset({"e"}),
    retired=frozenset({"d"}),
)


@pytest.mark.parametrize(
    "command",
    [
        RouteCommand(STATE),
        ReleaseCommand(STATE),
        HoldCommand(("a", "b")),
        DrainCommand(("a",), 0.5),
        StatsCommand(),
        RequestsCommand(),
        CutCommand("ab-1"),
        ReloadCommand(),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_command_arrives_as_it_was_sent(command: GatewayCommand) -> None:
    """Encoding and decoding give an equal command, in one line."""
    line = encode_command(command)
    assert line.count(b"\n") == 1
    assert decode_command(line) == command


@pytest.mark.parametrize(
    "answer",
    [
        GatewayAnswer(),
        GatewayAnswer(waiting=3),
        GatewayAnswer(finished=2, cut=1),
        GatewayAnswer(released=4),
        GatewayAnswer(stats={"profiles": {}, "uptime_s": 1.5}),
        GatewayAnswer(cut=1, requests={"requests": [{"id": "ab-1"}], "left_off": 0}),
        CommandRefused("not read: damaged"),
    ],
)
def test_an_answer_arrives_as_it_was_sent(answer: GatewayAnswer | CommandRefused) -> None:
    """Encoding and decoding give an equal answer, in one line."""
    line = encode_answer(answer)
    assert line.count(b"\n") == 1
    assert decode_answer(line) == answer


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"verb": "fly"}', "verb: invalid value"),
        (b'{"verb": ["hold"]}', "verb: expected `str`"),
        (b'{"verb": "hold", "names": "a"}', "names: expected `array`"),
        (b'{"verb": "hold", "names": ["../a"]}', "names.0.: expected `str` matching"),
        (b'{"verb": "cut"}', "request is missing"),
        (b'{"verb": "cut", "request": "a b"}', "request: expected `str` matching"),
        (b'{"verb": "route"}', "state is missing"),
        (b'{"verb": "drain", "names": [], "timeout_s": true}', "timeout_s: expected `float`"),
        (
            b'{"verb": "drain", "names": [], "timeout_s": 1e9}',
            "timeout_s: expected `float` <= 86400",
        ),
    ],
    ids=range(12),
)
def test_each_fault_of_a_command_is_named(line: bytes, words: str) -> None:
    """A command that makes no sense is a ValueError that says why."""
    with pytest.raises(ValueError, match=words):
        decode_command(line)


@given(
    st.fixed_dictionaries(
        {
            "verb": st.sampled_from(
                ["route", "hold", "drain", "release", "stats", "requests", "cut", "reload"]
            )
        },
        optional={
            key: st.none() | st.floats() | st.text() | st.lists(st.text(), max_size=3)
            for key in ("names", "request", "state", "timeout_s", "ok", "error", "waiting", "stats")
        },
    )
)
def test_every_object_is_read_or_refused(document: dict[str, object]) -> None:
    """Any fields are decoded to a value or a ValueError."""
    line = json.dumps(document).encode()
    with contextlib.suppress(ValueError):
        assert decode_command(encode_command(decode_command(line))) == decode_command(line)
    with contextlib.suppress(ValueError):
        assert isinstance(decode_answer(line), GatewayAnswer | CommandRefused)
