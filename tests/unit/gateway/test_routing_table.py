"""Routing table of the gateway."""

import json
from pathlib import Path

import pytest

from appliance.gateway.routing_table import STATE_FILE, RoutingTable
from appliance.model.gateway import Key, Refusal, Routed, State
from tests.fakes.gateway_states import (
    AEON,
    ANA,
    BEA,
    BOX,
    FAILED,
    GENESIS,
    STARTING,
    SWITCHING,
    WILLING,
    routed,
)
from tests.waiting import settle


def name_of(found: Routed | Refusal) -> str:
    return found.name if isinstance(found, Routed) else found.code


def status_of(found: bool | Refusal) -> bool | str:  # noqa: FBT001
    return found.code if isinstance(found, Refusal) else found


@pytest.mark.parametrize(
    ("state", "default", "aeon", "genesis"),
    [
        (AEON, "aeon", True, "model_not_active"),
        (SWITCHING, "genesis", False, False),
        (GENESIS, "genesis", "model_not_active", True),
        (
            State(standings={"aeon": STARTING}, committed=("aeon",)),
            "aeon",
            False,
            "model_not_active",
        ),
    ],
)
async def test_routes_follow_the_state(
    state: State,
    default: str,
    aeon: bool | str,  # noqa: FBT001
    genesis: bool | str,  # noqa: FBT001
) -> None:
    """A request is sent, waits, or is refused by the standing of its profile."""
    table = RoutingTable(BOX)
    table.take(state)
    assert name_of(table.route(None, None)) == default
    assert name_of(table.route("aeon-chat", None)) == "aeon"
    assert name_of(table.route("nobody", None)) == "model_not_found"
    assert status_of(table.readiness("aeon", None)) == aeon
    assert status_of(table.readiness("genesis", None)) == genesis
    assert status_of(table.readiness("gone", None)) == "model_not_found"


async def test_nothing_is_remembered_beyond_a_change() -> None:
    """A switch, a hold or an apply invalidates the cached routes."""
    table = RoutingTable(BOX)
    table.take(AEON)
    for state, default in ((AEON, "aeon"), (GENESIS, "genesis"), (AEON, "aeon")):
        table.take(state)
        other = "genesis" if default == "aeon" else "aeon"
        for _ in range(2):
            assert name_of(table.route(None, None)) == default
            assert table.readiness(default, None) is True
            assert table.readiness(other, None) is not True
    table.hold(["aeon"])
    assert table.readiness("aeon", None) is False
    table.take(AEON)
    assert table.readiness("aeon", None) is True
    table.adopt({"genesis": routed("genesis")})
    assert status_of(table.readiness("aeon", None)) == "model_not_found"
    assert name_of(table.route("aeon", None)) == "model_not_found"


async def test_before_the_first_word_every_request_waits() -> None:
    """Before the first state of the supervisor no request is refused."""
    table = RoutingTable(BOX)
    assert name_of(table.route(None, None)) == "aeon"
    assert table.readiness("aeon", None) is False
    table.adopt({"genesis": routed("genesis")})
    assert name_of(table.route(None, None)) == "genesis"
    table.take(GENESIS)
    assert table.readiness("genesis", None) is True


async def test_a_change_wakes_everybody_who_waits() -> None:
    """Each waiting request has a future of its own: cancelling one leaves the others."""
    table = RoutingTable(BOX)
    futures = [table.changed() for _ in range(3)]
    futures[0].cancel()
    await settle(1)
    table.take(AEON)
    assert [future.cancelled() or future.done() for future in futures] == [True] * 3
    again = table.changed()
    table.take(AEON)
    assert not again.done()  # nothing is new
    table.adopt(WILLING)
    assert again.done()


async def test_a_hold_is_kept_until_the_next_state() -> None:
    """Requests are held from the hold command to the next state."""
    table = RoutingTable(BOX)
    table.take(AEON)
    table.hold(["aeon"])
    assert table.readiness("aeon", None) is False
    table.take(AEON)
    assert table.readiness("aeon", None) is True


@pytest.mark.parametrize(
    ("key", "state", "answer", "wishes"),
    [
        (None, AEON, False, ["genesis"]),
        (ANA, AEON, False, ["genesis"]),
        (BEA, AEON, "model_not_active", []),
        (ANA, State(standings={"genesis": STARTING}), False, []),
        (ANA, SWITCHING, False, []),
        (ANA, State(paused=True), "model_not_active", []),
    ],
)
async def test_who_may_switch_by_asking(
    key: Key | None,
    state: State,
    answer: bool | str,  # noqa: FBT001
    wishes: list[str],
) -> None:
    """The profile, the key and the operator of the box all have to allow a switch."""
    wished: list[str] = []
    table = RoutingTable(WILLING, request_switch=lambda profile, _key: wished.append(profile.name))
    table.take(state)
    assert status_of(table.readiness("genesis", key)) == answer
    assert wished == wishes


async def test_what_waited_for_something_else_wishes_then() -> None:
    """A held request whose profile has gone asks for a switch."""
    wished: list[str] = []
    table = RoutingTable(
        {name: routed(name, on_request=True) for name in BOX},
        request_switch=lambda profile, _key: wished.append(profile.name),
    )
    table.take(SWITCHING)
    assert table.readiness("aeon", None) is False
    assert wished == []
    table.take(GENESIS)
    assert table.readiness("aeon", None) is False
    assert wished == ["aeon"]


async def test_a_failed_switch_is_told_until_it_is_forgiven() -> None:
    """Waiting requests are refused with the reason; later ones may wait again."""
    table = RoutingTable(WILLING)
    table.take(AEON)
    changed = table.changed()
    table.fail("genesis", FAILED)
    assert changed.done()
    assert table.readiness("genesis", None) == FAILED
    assert table.readiness("aeon", None) is True
    table.forgive("genesis")
    table.forgive("genesis")
    assert table.readiness("genesis", None) is False
    table.fail("genesis", FAILED)
    table.take(GENESIS)
    table.take(AEON)
    assert table.readiness("genesis", None) is False


async def test_the_last_word_survives_a_restart(tmp_path: Path) -> None:
    """A gateway that restarts without a supervisor routes by the last state."""
    RoutingTable(BOX, directory=tmp_path).take(AEON)
    again = RoutingTable(BOX, directory=tmp_path)
    assert again.state == AEON
    assert again.readiness("aeon", None) is True
    kept = tmp_path.iterdir()  # noqa: ASYNC240
    assert [path.name for path in kept] == [STATE_FILE]


@pytest.mark.parametrize("content", ["", "{}", "[" * 100_000, '{"standings": {"a": "asleep"}}'])
async def test_a_damaged_file_is_none(tmp_path: Path, content: str) -> None:
    """With an unreadable state file requests wait for the supervisor."""
    (tmp_path / STATE_FILE).write_text(content)
    assert RoutingTable(BOX, directory=tmp_path).readiness("aeon", None) is False


async def test_what_is_ready_is_what_was_routed_since_the_last_change() -> None:
    """Only routes of requests without a key to profiles that serve are kept, up to a change."""
    table = RoutingTable(BOX)
    table.take(AEON)
    table.route("aeon", ANA)
    assert not table.ready
    for model in (None, "aeon-chat", "genesis", "nobody"):
        table.route(model, None)
    assert {model: found.name for model, found in table.ready.items()} == {
        None: "aeon",
        "aeon-chat": "aeon",
    }
    table.hold(["aeon"])
    assert not table.ready
    table.route("aeon-chat", None)
    assert not table.ready


async def test_a_state_that_cannot_be_kept_is_served(tmp_path: Path) -> None:
    """On a full disk, or without the directory, the state is in force all the same."""
    table = RoutingTable(BOX, directory=tmp_path / "gone")
    table.take(AEON)
    assert table.readiness("aeon", None) is True


async def test_models_are_listed_with_their_state() -> None:
    """Clients can list the models, and get one entry."""
    table = RoutingTable(BOX)
    table.take(AEON)
    listed = {m["id"]: m["state"] for m in json.loads(table.models(None))["data"]}
    assert (listed["aeon"], listed["genesis"]) == ("serving", "down")
    one = table.model("aeon-chat", None)
    assert isinstance(one, bytes)
    assert json.loads(one)["profile"] == "aeon"


def test_the_list_of_models_is_made_once_between_two_changes() -> None:
    """Asking again makes nothing; a state, a profile that is gone and a key make another list."""
    table = RoutingTable(BOX)
    table.take(AEON)
    first = table.models(None)
    assert table.models(None) is first
    assert table.models(Key(name="one", profiles=("genesis",))) != first
    table.take(GENESIS)
    assert table.models(None) != first
    table.adopt({"genesis": BOX["genesis"]})
    assert b"aeon" not in table.models(None)


def test_keys_share_a_bounded_number_of_lists() -> None:
    """Every key gets its own list, also beyond the number of lists that are kept."""
    table = RoutingTable(BOX)
    for number in range(100):
        names = ("genesis", f"other-{number}")
        assert b"aeon" not in table.models(Key(name=str(number), profiles=names))
    assert b"aeon" in table.models(Key(name="last", profiles=("aeon",)))
