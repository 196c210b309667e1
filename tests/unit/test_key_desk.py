"""The control verb `key`: what is answered, and what is never told twice."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from appliance.adapters.key_file import FileKeys
from appliance.domain.errors import ApplianceError, BadRequestError
from appliance.gateway.keys import KeyRing
from appliance.supervisor.inference_keys import KeyDesk, Message, NoSuchKeyError


class StrangeProfileError(ApplianceError):
    """It is not applied."""


def check(names: Sequence[str]) -> None:
    """Only one profile is applied."""
    if set(names) - {"genesis"}:
        raise StrangeProfileError("no such profile")


@pytest.fixture
def desk(tmp_path: Path) -> KeyDesk:
    """A desk without keys."""
    return KeyDesk(FileKeys(tmp_path), check, lambda: 1_700_000_000.0)


def added(desk: KeyDesk, name: str, **args: object) -> Message:
    """The answer to who makes a key."""
    return desk.answer({"action": "add", "name": name, **args}, "ana")


def test_a_key_is_told_once(
    desk: KeyDesk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its text is in the answer, opens the gateway, and is in no list and no log."""
    caplog.set_level(logging.DEBUG)
    answer = added(desk, "phone", may_switch=True, profiles=["genesis", "genesis"])
    found = KeyRing(tmp_path).check(None, answer["key"].encode())
    assert found is not None
    assert (found.name, found.may_switch, found.profiles) == ("phone", True, ("genesis",))
    listed = desk.answer({"action": "ls"}, "ana")["keys"]
    row = {"id": answer["id"], "name": "phone", "may_switch": True, "profiles": ("genesis",)}
    assert listed == [{**row, "created_unix_s": 1_700_000_000.0}]
    secret = answer["key"].rpartition("_")[2]
    assert secret not in str(listed)
    assert secret not in caplog.text
    assert f"key {answer['id']} of phone is made by ana" in caplog.text


def test_a_second_key_of_a_name_says_which_was_there(desk: KeyDesk) -> None:
    """So that the old one can be taken away by its id."""
    first = added(desk, "phone")
    assert f"{first['id']} holds too" in added(desk, "phone")["message"]
    gone = desk.answer({"action": "rm", "name": first["id"]}, "ana")
    assert gone["message"] == "phone has one key less"
    gone = desk.answer({"action": "rm", "name": "phone"}, "ana")
    assert gone["message"].startswith("phone has no key any more; there is no key left")


def test_a_key_that_is_not_there_is_guessed(desk: KeyDesk) -> None:
    """A name with one letter wrong, and one that is like none."""
    added(desk, "laptop")
    with pytest.raises(NoSuchKeyError, match='no key "labtop"; did you mean "laptop"'):
        desk.answer({"action": "rm", "name": "labtop"}, "ana")
    with pytest.raises(NoSuchKeyError, match="appliance key ls"):
        desk.answer({"action": "rm", "name": "x" * 500}, "ana")


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"action": "steal"},
        {"action": "add"},
        {"action": "rm"},
        {"action": "add", "name": ""},
        {"action": "add", "name": "a b"},
        {"action": "add", "name": "a\n"},
        {"action": "add", "name": "x" * 49},
        {"action": "add", "name": ["a"]},
        {"action": "add", "name": "a", "profiles": "genesis"},
        {"action": "add", "name": "a", "profiles": [1]},
        {"action": "add", "name": "a", "profiles": {}},
        {"action": "add", "name": "a", "profiles": False},
        {"action": "add", "name": "a", "profiles": ""},
    ],
    ids=range(14),
)
def test_what_makes_no_sense_is_refused(desk: KeyDesk, args: Message) -> None:
    """And nothing is made."""
    with pytest.raises(BadRequestError):
        desk.answer(args, "ana")
    assert desk.answer({"action": "ls"}, "ana")["keys"] == []


def test_a_key_is_for_profiles_that_are_there(desk: KeyDesk) -> None:
    """One for a name with a typing error would open nothing, and nobody would know why."""
    with pytest.raises(StrangeProfileError):
        added(desk, "phone", profiles=["genesis", "gensis"])
    assert desk.answer({"action": "ls"}, "ana")["keys"] == []


def test_a_key_for_no_profile_is_refused(desk: KeyDesk) -> None:
    """An empty list is a mistake of the caller, and never means all profiles."""
    with pytest.raises(BadRequestError, match="names no profile: leave it out"):
        added(desk, "phone", profiles=[])
    assert desk.answer({"action": "ls"}, "ana")["keys"] == []
    assert added(desk, "phone", profiles=None)["exit"] == 0


def test_there_is_an_end(desk: KeyDesk) -> None:
    """A thousand keys are a mistake; taking some away makes room."""
    for _ in range(3):
        added(desk, "a")
    keys = desk._keys
    one = keys.all()[0]
    keys._write([one] * 1000)  # type: ignore[attr-defined]  # a thousand writes take seconds
    with pytest.raises(BadRequestError, match="1000 keys already"):
        added(desk, "a")
