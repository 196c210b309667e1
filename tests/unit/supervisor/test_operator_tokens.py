"""The control verb `token`: who may make one for whom, and what is told once."""

import logging
from pathlib import Path
from typing import cast

import pytest

from appliance.model.errors import BadRequestError, PermissionDeniedError
from appliance.supervisor.access_policy import Requester
from appliance.supervisor.operator_tokens import MOST_TOKENS, NoSuchTokenError, TokenDesk
from appliance.system.credential_files import TOKEN_FILE
from appliance.wire.control_requests import CONTROL, TokenRequest
from appliance.wire.conversation import ResultEvent
from appliance.wire.json_values import Json, text_in
from tests.fakes.operator_accounts import NOW_UNIX_S, token_desk

ANA = Requester(uid=1000, pid=7, user="ana")
BO = Requester(uid=1001, pid=8, user="bo")
ROOT = Requester(uid=0, pid=9, user="root")


@pytest.fixture
def desk(tmp_path: Path) -> TokenDesk:
    """A desk without tokens."""
    return token_desk(tmp_path)


def ask(desk: TokenDesk, by: Requester = ANA, **args: object) -> ResultEvent:
    """Return the answer to one request, as the control socket reads it."""
    return desk.answer(cast("TokenRequest", CONTROL.decode_request("token", args)), by)


def added(desk: TokenDesk, name: str, by: Requester = ANA, **args: object) -> str:
    """Return the id of a new token."""
    return text_in(ask(desk, by, action="add", name=name, **args).details, "id")


def listed(desk: TokenDesk) -> list[Json]:
    """Return the rows of all tokens."""
    rows = ask(desk, action="ls").details["tokens"]
    assert isinstance(rows, list)
    return rows


def test_a_token_is_told_once(
    desk: TokenDesk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A token's text is in the answer alone: in no list, no log, no file."""
    caplog.set_level(logging.DEBUG)
    answer = ask(desk, action="add", name="phone", for_s=3600)
    text = text_in(answer.details, "token")
    assert text.startswith(f"apt_{answer.details['id']}_")
    assert answer.message == "the token phone acts as ana, and is shown only this once"
    (row,) = listed(desk)
    assert row == {
        "id": answer.details["id"],
        "name": "phone",
        "user": "ana",
        "created_unix_s": NOW_UNIX_S,
        "created_by": "ana (uid 1000, pid 7)",
        "expires_unix_s": NOW_UNIX_S + 3600,
        "expired": False,
        "used_unix_s": None,
    }
    secret = text.rpartition("_")[2]
    file = tmp_path / TOKEN_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    for place in (str(listed(desk)), caplog.text, file.read_text()):
        assert secret not in place
    assert f"token {row['id']} (phone) of ana was made by ana (uid 1000, pid 7)" in caplog.text


@pytest.mark.parametrize("user", [None, "ana"])
def test_an_operator_makes_tokens_for_oneself(desk: TokenDesk, user: str | None) -> None:
    """Whether the name is given or not."""
    added(desk, "phone", user=user)
    assert [row["user"] for row in listed(desk)] == ["ana"]


def test_only_root_makes_a_token_for_another_operator(desk: TokenDesk) -> None:
    """An operator who could would act as another one."""
    with pytest.raises(PermissionDeniedError, match="only root may make a token for another"):
        added(desk, "phone", user="bo")
    assert listed(desk) == []
    added(desk, "phone", ROOT, user="bo")
    assert [row["user"] for row in listed(desk)] == ["bo"]


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("guest", "guest is no operator: sudo usermod -aG appliance-operators guest"),
        ("model", "model is no operator"),
        ("eva", 'there is no user "eva" on this machine'),
        ("x" * 500, 'there is no user "x+…" on this machine'),
    ],
)
def test_a_token_gives_no_right_that_its_user_lacks(desk: TokenDesk, user: str, why: str) -> None:
    """Root cannot make one for a guest, an engine or nobody either."""
    with pytest.raises(BadRequestError, match=why):
        added(desk, "phone", ROOT, user=user)
    assert listed(desk) == []


def test_a_name_removes_the_requesters_own_tokens(desk: TokenDesk) -> None:
    """Two operators may call their tokens alike; the id removes any."""
    mine, hers = added(desk, "phone"), added(desk, "phone", BO)
    again = ask(desk, action="add", name="phone").message
    assert again.endswith(f"; {mine} of this name remains valid too")
    assert ask(desk, action="rm", name="phone").message.startswith("the token phone (" + mine)
    with pytest.raises(NoSuchTokenError, match=rf"phone is a token of bo \({hers}\)"):
        ask(desk, action="rm", name="phone")
    removed = ask(desk, action="rm", name=hers)
    assert removed.message == f"the token phone ({hers}) of bo is refused from now on"
    assert listed(desk) == []


def test_a_token_that_is_not_there_is_guessed(desk: TokenDesk) -> None:
    """A name with one letter wrong, and one that is like none."""
    added(desk, "laptop")
    with pytest.raises(NoSuchTokenError, match='no token "labtop"; did you mean "laptop"'):
        ask(desk, action="rm", name="labtop")
    with pytest.raises(NoSuchTokenError, match="appliance token ls"):
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
        {"action": "add", "name": "a)"},
        {"action": "add", "name": "x" * 49},
        {"action": "add", "name": "a", "user": 1000},
        {"action": "add", "name": "a", "for_s": 0},
        {"action": "add", "name": "a", "for_s": -1},
        {"action": "add", "name": "a", "for_s": "1h"},
    ],
    ids=range(13),
)
def test_senseless_requests_are_refused(desk: TokenDesk, args: Json) -> None:
    """And nothing is made."""
    with pytest.raises(BadRequestError):
        desk.answer(cast("TokenRequest", CONTROL.decode_request("token", args)), ANA)
    assert listed(desk) == []


def test_tokens_are_bounded(desk: TokenDesk) -> None:
    """Each check reads the file, so it stays small."""
    for _ in range(MOST_TOKENS):
        added(desk, "a")
    with pytest.raises(BadRequestError, match="100 tokens already"):
        added(desk, "a")
