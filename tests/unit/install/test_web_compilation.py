"""`appliance apply` and the status API: where it listens, and what keeps it on this machine."""

from pathlib import Path

import pytest

from appliance.model.operators import OperatorToken
from appliance.switch.units.daemon_drop_ins import WEB_DROP_IN
from appliance.wire.control import Exit
from tests.fakes.apply_box import ApplyBox

WIDE = 'listen = ["127.0.0.1", "::1", "10.10.10.1"]\n'
REOPENED = "reopen appliance-web.socket, appliance-web.service"
OF_ROOT = OperatorToken(name="phone", uid=0, user="root")


@pytest.fixture
def box(tmp_path: Path) -> ApplyBox:
    return ApplyBox(tmp_path)


def drop_in(box: ApplyBox) -> str:
    """The drop-in of the socket; empty: there is none."""
    path = box.drop_in(WEB_DROP_IN)
    return path.read_text() if path.exists() else ""


def test_without_a_token_the_page_stays_on_this_machine(box: ApplyBox) -> None:
    """One sentence says why and what to do; nothing is written, and nothing opened."""
    assert box.apply("", web=WIDE) == Exit.CONFIG
    assert 'stays on this machine: "10.10.10.1" in web.listen is beyond it' in box.err
    assert "appliance token add NAME, then sudo appliance apply" in box.err
    assert drop_in(box) == ""
    assert REOPENED not in box.manager.calls


def test_with_a_token_it_listens_where_it_is_told_to(box: ApplyBox) -> None:
    """Systemd reads the drop-in before the socket is opened anew; a second apply does nothing."""
    box.tokens.add(OF_ROOT, "root", 1.0)
    box.apply("")
    assert box.apply("", web=WIDE) == Exit.OK
    assert "ListenStream=10.10.10.1:8011\nListenNetlink=inet-diag\nIPAddressAllow=any\n" in drop_in(
        box
    )
    assert box.manager.calls == ["daemon-reload", "reload supervisor", REOPENED]
    assert "signs in again" in box.out
    assert box.apply("", web=WIDE) == Exit.OK
    assert box.manager.calls == []
    assert "nothing to change" in box.out


@pytest.mark.parametrize(
    "token",
    [
        OperatorToken(name="phone", uid=0, user="root", expires_unix_s=1.0),
        OperatorToken(name="phone", uid=0, user="somebody-before"),
        None,
    ],
    ids=["expired", "its user is gone", "removed"],
)
def test_when_the_last_token_is_gone_it_is_closed(
    box: ApplyBox, token: OperatorToken | None
) -> None:
    """By the next apply, whether the token was removed or is of no use any more."""
    _, made = box.tokens.add(OF_ROOT, "root", 1.0)
    box.apply("", web=WIDE)
    box.tokens.remove(frozenset({made.id}))
    if token is not None:
        box.tokens.add(token, "root", 1.0)
    assert box.apply("", web=WIDE) == Exit.CONFIG
    assert drop_in(box) == ""
    assert box.manager.calls[-1] == REOPENED


def test_without_the_setting_it_is_closed(box: ApplyBox) -> None:
    """The drop-in goes with the setting, and its directory too."""
    box.tokens.add(OF_ROOT, "root", 1.0)
    box.apply("", web=WIDE)
    assert box.apply("") == Exit.OK
    assert not box.drop_in(WEB_DROP_IN).parent.exists()
    assert box.manager.calls[-1] == REOPENED


def test_damaged_tokens_are_none(box: ApplyBox) -> None:
    """Without a file that can be read no operator acts by one."""
    box.tokens.add(OF_ROOT, "root", 1.0)
    (box.root / "state/tokens.json").write_text("{")
    assert box.apply("", web=WIDE) == Exit.CONFIG
    assert drop_in(box) == ""


def test_a_socket_that_does_not_open_is_told(box: ApplyBox) -> None:
    """As when another program has the port."""
    box.tokens.add(OF_ROOT, "root", 1.0)
    box.manager.opens = False
    assert box.apply("", web=WIDE) == Exit.CONFIG
    assert "the page does not listen: systemctl status appliance-web.socket" in box.err


def test_a_dry_run_opens_nothing(box: ApplyBox) -> None:
    """A dry run tells what it would write."""
    box.tokens.add(OF_ROOT, "root", 1.0)
    assert box.apply("", web=WIDE, dry_run=True) == Exit.OK
    assert f"would create {WEB_DROP_IN}" in box.out
    assert box.manager.calls == []
