"""Codec of the requests on the control socket."""

import contextlib
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.errors import BadRequestError
from appliance.model.words import Mark
from appliance.wire.control_requests import (
    CONTROL,
    AddKeyRequest,
    AttachRequest,
    CancelRequest,
    ControlRequest,
    GpuStateRequest,
    HoldRequest,
    ListKeysRequest,
    MarkRequest,
    OnRequestSwitch,
    ReloadRequest,
    RemoveKeyRequest,
    RestartRequest,
    RunRequest,
    StartRequest,
    StatusRequest,
    StopRequest,
    SwitchRequest,
    WatchStatusRequest,
)
from appliance.wire.conversation import PROTOCOL_MAX, parse_request

NAMES = st.text(min_size=1)
LISTS = st.lists(NAMES, unique=True).map(tuple)
SECONDS = st.none() | st.floats(0, 1e9, exclude_max=True)
FLAGS = st.booleans()
REQUESTS: st.SearchStrategy[ControlRequest] = st.one_of(
    st.just(StatusRequest()),
    st.just(WatchStatusRequest()),
    st.just(GpuStateRequest()),
    st.builds(SwitchRequest, NAMES, FLAGS, FLAGS, SECONDS),
    st.builds(SwitchRequest, st.none(), FLAGS, FLAGS, SECONDS, LISTS),
    st.builds(StartRequest, LISTS, FLAGS),
    st.builds(StopRequest, LISTS, FLAGS, SECONDS),
    st.builds(RestartRequest, LISTS, FLAGS, SECONDS),
    st.builds(HoldRequest, SECONDS, FLAGS, SECONDS),
    st.builds(
        RunRequest, NAMES, st.just("all") | st.lists(st.integers(0, 255)).map(tuple), FLAGS, SECONDS
    ),
    st.just(CancelRequest()),
    st.builds(AttachRequest, st.none() | st.integers(0, 2**63 - 1)),
    st.builds(MarkRequest, NAMES, st.sampled_from(Mark)),
    st.builds(
        AddKeyRequest, NAMES, FLAGS, st.none() | st.lists(NAMES, min_size=1, unique=True).map(tuple)
    ),
    st.just(ListKeysRequest()),
    st.builds(RemoveKeyRequest, NAMES),
    st.just(ReloadRequest()),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["name", "names", "drain_s", "dry_run", "gpus", "command", "operation", "action", "mark"]


def decoded(line: bytes) -> ControlRequest:
    document = parse_request(line)
    assert CONTROL.common_protocol(document) == PROTOCOL_MAX
    return CONTROL.decode_request(*CONTROL.verb_of(document))


@given(REQUESTS)
def test_a_request_arrives_as_it_was_sent(request: ControlRequest) -> None:
    """Encoding and decoding give an equal request of the same type, in one line."""
    line = CONTROL.encode_request(request)
    assert line.count(b"\n") == 1
    found = decoded(line)
    assert (type(found), found) == (type(request), request)


def test_a_switch_on_request_says_nothing_else() -> None:
    """The gateway sends the two arguments that every release of request.sock takes."""
    line = CONTROL.encode_request(OnRequestSwitch("genesis", "key ana"))
    verb, args = CONTROL.verb_of(json.loads(line))
    assert (verb, args) == ("switch", {"name": "genesis", "on_behalf": "key ana"})
    assert CONTROL.filled(OnRequestSwitch, args) == OnRequestSwitch("genesis", "key ana")
    assert CONTROL.filled(OnRequestSwitch, {"name": "genesis"}) == OnRequestSwitch("genesis")


@pytest.mark.parametrize(
    ("verb", "args", "request_"),
    [
        ("switch", {"name": "a"}, SwitchRequest("a")),
        ("switch", {"name": "a", "rollback": None, "drain_s": 5}, SwitchRequest("a", drain_s=5.0)),
        ("switch", {"name": "a", "of a later release": [1]}, SwitchRequest("a")),
        ("switch", {"names": ["a", "b"]}, SwitchRequest(names=("a", "b"))),
        ("start", {}, StartRequest()),
        ("start", {"names": None}, StartRequest()),
        ("start", {"names": []}, StartRequest()),
        ("stop", {"names": ["a", "b", "a"]}, StopRequest(("a", "b"))),
        ("hold", {}, HoldRequest()),
        ("run", {"command": "sh", "gpus": []}, RunRequest("sh", ())),
        ("attach", {}, AttachRequest()),
        ("key", {"action": "add", "name": "a", "may_switch": None}, AddKeyRequest("a")),
    ],
)
def test_what_is_left_out_has_its_default(
    verb: str, args: Mapping[str, object], request_: ControlRequest
) -> None:
    """Fields that are null or missing have their default; unknown fields are ignored."""
    assert CONTROL.decode_request(verb, args) == request_


@pytest.mark.parametrize(
    ("verb", "args", "field"),
    [
        ("switch", {"name": 3}, "name"),
        ("switch", {"name": "a", "dry_run": "no"}, "dry_run"),
        ("switch", {"name": "a", "rollback": 0}, "rollback"),
        ("switch", {"name": "a", "drain_s": True}, "drain_s"),
        ("switch", {"name": "a", "drain_s": float("nan")}, "drain_s"),
        ("hold", {"for_s": 10**400}, "for_s"),
        ("hold", {"for_s": -1}, "for_s"),
        ("stop", {"names": "a"}, "names"),
        ("stop", {"names": [1]}, "names"),
        ("run", {"gpus": "all"}, "command"),
        ("run", {"command": "sh"}, "gpus"),
        ("run", {"command": "sh", "gpus": [256]}, "gpus"),
        ("run", {"command": "sh", "gpus": [True]}, "gpus"),
        ("attach", {"operation": -1}, "operation"),
        ("attach", {"operation": 2**63}, "operation"),
        ("attach", {"operation": True}, "operation"),
        ("mark", {"name": "a", "mark": ["live"]}, "mark"),
        ("cut", {"request": "A1"}, "request"),
        ("cut", {"request": "a1\n"}, "request"),
        ("cut", {"request": "a" * 49}, "request"),
        ("key", {"action": ["add"]}, "action is none of add, ls and rm"),
        ("key", {"action": "add", "name": "a", "profiles": "b"}, "profiles"),
    ],
)
def test_each_wrong_field_is_named(verb: str, args: Mapping[str, object], field: str) -> None:
    """A field of the wrong type or out of its range is refused by its name."""
    with pytest.raises(BadRequestError, match=rf"^{field}\b"):
        CONTROL.decode_request(verb, args)


@given(st.sampled_from(CONTROL.verbs), st.dictionaries(st.sampled_from(FIELDS) | st.text(), JSON))
def test_every_object_is_a_request_or_a_bad_one(verb: str, args: Mapping[str, object]) -> None:
    """Any arguments are decoded to a request or to `BadRequestError`."""
    try:
        request = CONTROL.decode_request(verb, args)
    except BadRequestError:
        return
    assert decoded(CONTROL.encode_request(request)) == request


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_every_line_is_a_request_or_a_bad_one(line: bytes) -> None:
    """Any bytes end the handshake with a verb or with `BadRequestError`."""
    with contextlib.suppress(BadRequestError):
        document = parse_request(line)
        CONTROL.common_protocol(document)
        CONTROL.verb_of(document)


def sent(request: ControlRequest) -> Mapping[str, object]:
    """Return the arguments on the line of a request."""
    args = json.loads(CONTROL.encode_request(request))["args"]
    assert isinstance(args, dict)
    return args


def test_one_profile_is_switched_to_by_every_release_and_a_set_by_none_that_knows_no_sets() -> None:
    """An earlier supervisor reads `name` alone: it does one, and refuses a set whole, not a part of it."""
    one, two = SwitchRequest.to(["a"]), SwitchRequest.to(["b", "a"], drain_s=0.0)
    assert (sent(one)["name"], sent(two)["name"]) == ("a", None)
    for request in (one, two):
        decoded = CONTROL.decode_request("switch", sent(request))
        assert isinstance(decoded, SwitchRequest)
        assert decoded.targets() == request.targets()
    assert (one.targets(), two.targets()) == (("a",), ("b", "a"))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (SwitchRequest(), "name is missing"),
        (SwitchRequest("a", names=("b",)), "name excludes names"),
    ],
)
def test_a_switch_names_its_profiles_once(request_: SwitchRequest, words: str) -> None:
    """A switch to nothing is refused, and so is one in both forms, where one of them would not count."""
    with pytest.raises(BadRequestError, match=words):
        request_.targets()
