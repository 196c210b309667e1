"""Inference keys: storage and check."""

import json
import os
from pathlib import Path

import pytest

from appliance.gateway.keys import KeyRing
from appliance.model.errors import StoreError
from appliance.model.gateway import Key
from appliance.system.credential_files import KEY_FILE, FileKeys, StoredKey, read_keys

PHONE = Key(name="phone")
AGENT = Key(name="agent", may_switch=True, profiles=("genesis", "aeon"))


def bearer(text: str) -> bytes:
    """The value of an Authorization header."""
    return f"Bearer {text}".encode()


def test_a_key_opens_and_says_whose_it_is(tmp_path: Path) -> None:
    """A key is found in either header, and with the word Bearer in any case."""
    text, _ = FileKeys(tmp_path).add(AGENT, 5.0)
    ring = KeyRing(tmp_path)
    assert ring.check(bearer(text), None) == AGENT
    assert ring.check(f"bEARER  {text} ".encode(), None) == AGENT
    assert ring.check(None, text.encode()) == AGENT


def test_nothing_of_a_keys_secret_is_kept(tmp_path: Path) -> None:
    """The file has the id and a hash, is closed to others, and decodes to the same keys."""
    keys = FileKeys(tmp_path)
    text, stored = keys.add(PHONE, 5.0)
    _, identity, secret = text.split("_")
    content = (tmp_path / KEY_FILE).read_text()
    assert secret not in content
    assert text not in content
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o640
    assert stored.id == identity
    assert keys.all() == (stored,)


@pytest.mark.parametrize(
    "template",
    ["{most}", "{text}0", "apl_00000000_{secret}", "apl_", "apl_\x00_\xff"],
)
def test_a_wrong_key_is_refused(tmp_path: Path, template: str) -> None:
    """A key with a character less or more, another id, or no secret is refused."""
    text, _ = FileKeys(tmp_path).add(PHONE, 5.0)
    wrong = template.format(text=text, most=text[:-1], secret=text.rpartition("_")[2])
    ring = KeyRing(tmp_path)
    for headers in ((bearer(wrong), None), (None, wrong.encode("latin-1"))):
        with pytest.raises(PermissionError):
            ring.check(*headers)


def test_a_right_key_does_not_make_up_for_a_wrong_one(tmp_path: Path) -> None:
    """A request with two inference keys needs both to be right."""
    text, _ = FileKeys(tmp_path).add(PHONE, 5.0)
    with pytest.raises(PermissionError):
        KeyRing(tmp_path).check(bearer(text), b"apl_00000000_x")


@pytest.mark.parametrize(
    ("authorization", "api_key"),
    [
        (None, None),
        (b"Bearer sk-none", None),
        (b"Basic YTpi", None),
        (b"", b""),
        (b"Bearer", b"dummy"),
        (b"Bearer apl_" + b"x" * 300, None),
    ],
)
def test_what_is_no_key_of_ours_counts_as_none(
    tmp_path: Path, authorization: bytes | None, api_key: bytes | None
) -> None:
    """Text of another form counts as no key, for clients that always send some."""
    FileKeys(tmp_path).add(PHONE, 5.0)
    assert KeyRing(tmp_path).check(authorization, api_key) is None


def test_keys_come_and_go_while_the_gateway_runs(tmp_path: Path) -> None:
    """A new key counts from the next refresh on, and a removed one counts no more."""
    keys, ring = FileKeys(tmp_path), KeyRing(tmp_path)
    assert ring.empty
    text, _ = keys.add(PHONE, 5.0)
    ring.refresh()
    assert ring.check(bearer(text), None) == PHONE
    keys.remove("phone")
    ring.refresh()
    assert ring.empty
    with pytest.raises(PermissionError):
        ring.check(bearer(text), None)


def test_a_key_is_renewed_without_a_gap(tmp_path: Path) -> None:
    """Two keys may share a name; one is removed by its id, all of them by the name."""
    keys = FileKeys(tmp_path)
    _, old = keys.add(PHONE, 1.0)
    _, new = keys.add(PHONE, 2.0)
    assert old.id != new.id
    assert keys.remove(old.id) == (old,)
    assert keys.all() == (new,)
    _, third = keys.add(PHONE, 3.0)
    keys.add(AGENT, 4.0)
    assert keys.remove("phone") == (new, third)
    assert [k.key for k in keys.all()] == [AGENT]
    assert keys.remove("nobody") == ()


@pytest.mark.parametrize(
    "content", ["", "[]", '{"format":1,"keys":[{}]}', '{"format":9}', "[" * 9999], ids=range(5)
)
def test_a_damaged_file_changes_nothing(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The gateway keeps the keys that it has, and logs the damage once."""
    text, _ = FileKeys(tmp_path).add(PHONE, 5.0)
    ring = KeyRing(tmp_path)
    (tmp_path / KEY_FILE).write_text(content)
    ring.refresh()
    ring.refresh()
    assert ring.check(bearer(text), None) == PHONE
    assert len(caplog.records) == 1
    with pytest.raises(StoreError):
        FileKeys(tmp_path).add(AGENT, 6.0)


@pytest.mark.parametrize("field", ["id", "name", "sha256", "may_switch", "profiles"])
def test_a_key_that_lacks_a_field_is_damaged(tmp_path: Path, field: str) -> None:
    """A limit that is missing does not count as none."""
    keys = FileKeys(tmp_path)
    keys.add(PHONE, 5.0)
    document = json.loads((tmp_path / KEY_FILE).read_text())
    del document["keys"][0][field]
    (tmp_path / KEY_FILE).write_text(json.dumps(document))
    with pytest.raises(StoreError, match="is damaged"):
        keys.all()


def test_a_link_is_no_key_file(tmp_path: Path) -> None:
    """Root reads a regular file there, or nothing."""
    (tmp_path / KEY_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        read_keys(tmp_path / KEY_FILE)


def test_keys_of_the_same_second_are_seen(tmp_path: Path) -> None:
    """A changed file is noticed by more than its time."""
    keys = FileKeys(tmp_path)
    keys.add(PHONE, 5.0)
    ring = KeyRing(tmp_path)
    seen = (tmp_path / KEY_FILE).stat()
    text, _ = keys.add(AGENT, 5.0)
    os.utime(tmp_path / KEY_FILE, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    ring.refresh()
    assert ring.check(bearer(text), None) == AGENT


def test_a_stored_key_shows_no_secret(tmp_path: Path) -> None:
    """The text of a stored key in an error or a log has no secret."""
    text, stored = FileKeys(tmp_path).add(PHONE, 5.0)
    assert isinstance(stored, StoredKey)
    assert text.rpartition("_")[2] not in repr(stored)
