"""Presented tokens: accepted with the rights of this moment, or refused without a trace of their text."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.model.errors import ApplianceError, BusyError, PermissionDeniedError, StoreError
from appliance.model.operators import OperatorToken
from appliance.supervisor.token_check import MOST_WRONG, WRONG_S, TokenCheck
from appliance.system.credential_files import USE_EVERY_S, FileTokens
from tests.fakes.operator_accounts import ANA, BO, ENGINE, GUEST, FakeAccounts

NOW_S = 1_700_000_000.0


class Box:
    """Tokens and users of a box, and its clocks."""

    def __init__(self, directory: Path) -> None:
        self.now_s = NOW_S
        self.tokens = FileTokens(directory)
        self.accounts = FakeAccounts(ANA, BO)
        self.check = TokenCheck(
            self.tokens,
            self.accounts.of_uid,
            now_unix_s=lambda: self.now_s,
            monotonic_s=lambda: self.now_s - 5_000,
        )

    def add(self, expires_s: float | None = None) -> str:
        """Return the text of a new token of ana."""
        token = OperatorToken(name="phone", uid=1000, user="ana", expires_unix_s=expires_s)
        return self.tokens.add(token, "ana", NOW_S)[0]

    def refusal(self, text: str) -> str:
        """Return the sentence with which a text is refused."""
        with pytest.raises(PermissionDeniedError) as refused:
            self.check.operator(text)
        return str(refused.value)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_a_token_names_its_operator(box: Box) -> None:
    """With the name of the token, for records."""
    operator = box.check.operator(box.add())
    assert (operator.uid, str(operator)) == (1000, "ana (token phone)")


def test_each_altered_character_is_refused(box: Box) -> None:
    """Whether prefix, id or secret differs, the sentence is that of a text that never was a token."""
    text = box.add()
    sentence = box.refusal("apt_")
    for at, character in enumerate(text):
        box.now_s += WRONG_S
        other = "a" if character != "a" else "b"
        assert box.refusal(text[:at] + other + text[at + 1 :]) == sentence
    for wrong in (
        text[:-1],
        f"{text}0",
        text.upper(),
        f" {text}",
        "",
        "apt_é",
        "\udcff",
        "x" * 10**6,
    ):
        box.now_s += WRONG_S
        assert box.refusal(wrong) == sentence
    assert str(box.check.operator(text)) == "ana (token phone)"


def test_a_removed_token_is_refused_at_once(box: Box) -> None:
    """The file is what counts, not a memory of it."""
    text = box.add()
    box.check.operator(text)
    box.tokens.remove(frozenset({box.tokens.all()[0].id}))
    assert box.refusal(text).startswith("the token is not known, or was removed")


def test_a_token_expires(box: Box) -> None:
    """From its time on it is refused, also when its time is this moment."""
    text = box.add(expires_s=NOW_S + 60)
    box.now_s = NOW_S + 59.9
    box.check.operator(text)
    box.now_s = NOW_S + 60
    assert box.refusal(text).startswith("the token has expired")


@pytest.mark.parametrize(
    ("account", "why"),
    [
        (replace(GUEST, uid=1000, user="ana"), "is not in appliance-operators any more"),
        (replace(ENGINE, uid=1000, user="ana"), "is not in appliance-operators any more"),
        (replace(BO, uid=1000), "the token's user ana is gone"),
        (None, "the token's user ana is gone"),
    ],
    ids=["left the group", "engine", "number of another user", "deleted"],
)
def test_a_token_never_outlives_the_rights_of_its_user(box: Box, account: object, why: str) -> None:
    """A token is refused when its operator left the group, or the user database gave the number to somebody else."""
    text = box.add()
    box.accounts.known.clear()
    if account is not None:
        box.accounts.known["ana"] = account  # type: ignore[assignment]
    assert why in box.refusal(text)


def test_a_token_is_usable_while_somebody_may_act_by_it(box: Box, tmp_path: Path) -> None:
    """None, one that has expired, one more, one whose operator left the group, and a damaged file."""
    assert not box.check.is_any_usable()
    box.add(expires_s=NOW_S)
    assert not box.check.is_any_usable()
    box.add()
    assert box.check.is_any_usable()
    box.accounts.known.clear()
    assert not box.check.is_any_usable()
    box.accounts.known["ana"] = ANA
    (tmp_path / "tokens.json").write_text("{")
    assert not box.check.is_any_usable()


def test_guesses_at_one_token_are_limited(box: Box) -> None:
    """After ten wrong secrets of its id more are told so for a minute."""
    text = box.add()
    wrong = f"{text[:-4]}0000"
    for _ in range(2):
        for _ in range(MOST_WRONG):
            box.refusal(wrong)
        with pytest.raises(BusyError, match="try again in a minute"):
            box.check.operator(wrong)
        box.now_s += WRONG_S


def test_guesses_lock_no_owner_out(box: Box) -> None:
    """A stranger who knows an id, which is no secret, cannot keep its owner from acting, however much they send."""
    text, other = box.add(), box.add()
    for _ in range(5 * MOST_WRONG):
        with pytest.raises(ApplianceError):
            box.check.operator(f"{text[:-4]}0000")
        assert box.check.operator(text).uid == 1000
        assert box.check.operator(other).uid == 1000


def test_a_secret_is_too_long_to_guess(box: Box) -> None:
    """Since no guess is kept from being looked at."""
    secret = box.add().rpartition("_")[2]
    assert len(bytes.fromhex(secret)) * 8 >= 128


def test_texts_of_no_token_lock_nobody_out(box: Box) -> None:
    """A stranger who knows no id can send as many as they like."""
    text = box.add()
    for number in range(10 * MOST_WRONG):
        box.refusal(f"apt_{number:08x}_{'0' * 48}")
    box.check.operator(text)
    assert not box.check._wrong


def test_refusals_fill_no_log(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """One line a minute tells how many there were; no presented text is in it."""
    caplog.set_level(logging.DEBUG)
    text = box.add()
    secret = text.rpartition("_")[2]
    wrong = f"apt_planted_{secret}"
    for _ in range(50):
        box.refusal(wrong)
    box.now_s += 60
    box.refusal(f"{text}x")
    first, second = [record.getMessage() for record in caplog.records]
    assert first == "an unknown token was presented and refused"
    assert second.endswith("was presented and refused, and 49 others since the last such line")
    assert "planted" not in caplog.text
    assert secret not in caplog.text


def test_the_last_use_is_on_record(box: Box) -> None:
    """At most once in ten minutes, so that a token in use costs no write each time."""
    text = box.add()
    box.check.operator(text)
    assert box.tokens.all()[0].used_unix_s == NOW_S
    box.now_s += USE_EVERY_S - 1
    box.check.operator(text)
    assert box.tokens.all()[0].used_unix_s == NOW_S
    box.now_s += 1
    box.check.operator(text)
    assert box.tokens.all()[0].used_unix_s == NOW_S + USE_EVERY_S


def test_a_damaged_file_lets_nobody_in(box: Box, tmp_path: Path) -> None:
    """Not even who has a token; the error names the file."""
    text = box.add()
    file = tmp_path / "tokens.json"
    file.write_text(file.read_text().replace('"expires_unix_s": null,', ""))
    with pytest.raises(StoreError, match=r"tokens\.json is damaged"):
        box.check.operator(text)


class FullDisk(FileTokens):
    """Store on a disk that takes nothing."""

    def note_use(self, identity: str, now_unix_s: float) -> None:
        raise StoreError(f"no space for {identity} at {now_unix_s}")


def test_a_full_disk_keeps_no_operator_out(tmp_path: Path, box: Box) -> None:
    """The use is not on record then, which the log says."""
    text = box.add()
    check = TokenCheck(
        FullDisk(tmp_path), box.accounts.of_uid, now_unix_s=lambda: 0.0, monotonic_s=lambda: 0.0
    )
    assert check.operator(text).user == "ana"


def test_errors_have_no_text_of_a_token(box: Box) -> None:
    """Errors of every kind of refusal are without it."""
    text = box.add()
    secret = text.rpartition("_")[2]
    tried = [f"{text}0"] * (MOST_WRONG + 1) + [f"apt_{secret}", secret]
    for one in tried:
        with pytest.raises(ApplianceError) as refused:
            box.check.operator(one)
        assert secret not in str(refused.value)
