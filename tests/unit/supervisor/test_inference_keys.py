"""The control verb `key`: what is answered, and what is never told twice."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from appliance.gateway.keys import KeyRing
from appliance.model.errors import ApplianceError, BadRequestError
from appliance.supervisor.access_policy import Requester
from appliance.supervisor.inference_keys import KeyDesk, NoSuchKeyError
from appliance.system.credential_files import FileKeys
from appliance.wire.control import Exit
from appliance.wire.control_requests import CONTROL, KeyRequest
from appliance.wire.conversation import ResultEvent
from appliance.wire.json_values import Json, text_in

ANA = Requester(uid=1000, pid=7, user="ana")


class StrangeProfileError(ApplianceError):
    """Error for a profile that is not applied."""


def check(names: Sequence[str]) -> None:
    """Only one profile is applied."""
    if set(names) - {"genesis"}:
        raise StrangeProfileError("no such profile")


@pytest.fixture
def desk(tmp_path: Path) -> KeyDesk:
    """A desk without keys."""
    return KeyDesk(FileKeys(tmp_path), check, lambda: 1_700_000_000.0)


def ask(desk: KeyDesk, **args: object) -> ResultEvent:
    """Return the answer to one request, as the control socket reads it."""
    return desk.answer(cast("KeyRequest", CONTROL.decode_request("key", args)), ANA)


def added(desk: KeyDesk, name: str, **args: object) -> ResultEvent:
    """Return the answer to a client that makes a key."""
    return ask(desk, action="add", name=name, **args)


def listed(desk: KeyDesk) -> list[Json]:
    """Return the rows of all keys."""
    rows = ask(desk, action="ls").details["keys"]
    assert isinstance(rows, list)
    return rows


def test_a_key_is_told_once(
    desk: KeyDesk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A key's text is in the answer, opens the gateway, and is in no list and no log."""
    caplog.set_level(logging.DEBUG)
    answer = added(desk, "phone", may_switch=True, profiles=["genesis", "genesis"])
    key = text_in(answer.details, "key")
    found = KeyRing(tmp_path).check(None, key.encode())
    assert found is not None
    assert (found.name, found.may_switch, found.profiles) == ("phone", True, ("genesis",))
    number = answer.details["id"]
    row = {"id": number, "name": "phone", "may_switch": True, "profiles": ("genesis",)}
    assert listed(desk) == [{**row, "created_unix_s": 1_700_000_000.0}]
    secret = key.rpartition("_")[2]
    assert secret not in str(listed(desk))
    assert secret not in caplog.text
    assert f"key {number} of phone was made by ana (uid 1000, pid 7)" in caplog.text


def test_a_second_key_of_a_name_says_which_was_there(desk: KeyDesk) -> None:
    """The answer names the older key, so that it can be removed by its id."""
    first = added(desk, "phone")
    number = text_in(first.details, "id")
    assert f"{number} remains valid too" in added(desk, "phone").message
    assert ask(desk, action="rm", name=number).message == "phone has one key less"
    removed = ask(desk, action="rm", name="phone")
    assert removed.message.startswith("phone has no key any more; no key is left")


def test_a_key_that_is_not_there_is_guessed(desk: KeyDesk) -> None:
    """A name with one letter wrong, and one that is like none."""
    added(desk, "laptop")
    with pytest.raises(NoSuchKeyError, match='no key "labtop"; did you mean "laptop"'):
        ask(desk, action="rm", name="labtop")
    with pytest.raises(NoSuchKeyError, match="appliance key ls"):
        ask(desk, action="rm", name="x" * 500)


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
def test_what_makes_no_sense_is_refused(desk: KeyDesk, args: Json) -> None:
    """And nothing is made."""
    with pytest.raises(BadRequestError):
        ask(desk, **args)
    assert listed(desk) == []


def test_a_key_is_for_profiles_that_are_there(desk: KeyDesk) -> None:
    """One for a name with a typing error would open nothing, and nobody would know why."""
    with pytest.raises(StrangeProfileError):
        added(desk, "phone", profiles=["genesis", "gensis"])
    assert listed(desk) == []


def test_a_key_for_no_profile_is_refused(desk: KeyDesk) -> None:
    """An empty list is a mistake of the caller, and never means all profiles."""
    with pytest.raises(BadRequestError, match="names no profile: leave it out"):
        added(desk, "phone", profiles=[])
    assert listed(desk) == []
    assert added(desk, "phone", profiles=None).exit == Exit.OK


def test_there_is_an_end(desk: KeyDesk) -> None:
    """A thousand keys are a mistake; taking some away makes room."""
    for _ in range(3):
        added(desk, "a")
    keys = desk._keys
    one = keys.all()[0]
    keys._file.write([one] * 1000)  # type: ignore[attr-defined]  # a thousand writes take seconds
    with pytest.raises(BadRequestError, match="1000 keys already"):
        added(desk, "a")
