"""`appliance apply` and the gateway: what it is told, and what stays on this machine."""

from pathlib import Path

import pytest

from appliance.install.compilation import (
    certificate_problem,
    engine_key_warnings,
    secret_problem,
)
from appliance.model.gateway import Key
from appliance.model.operators import OperatorToken
from appliance.model.profile import Handling
from appliance.switch.units.daemon_drop_ins import SERVICE_DROP_IN, SOCKET_DROP_IN, WEB_DROP_IN
from appliance.wire.control import Exit
from tests.fakes.apply_box import ApplyBox
from tests.fakes.certificates import self_signed
from tests.fakes.unit_specs import made

PROFILE = """\
engine = "command"
port = 9000
gpus = []

[command]
argv = ["/bin/true", "{port}"]
"""
WIDE = 'listen = ["127.0.0.1", "::1", "10.10.10.1", "wg0"]\n'


@pytest.fixture
def box(tmp_path: Path) -> ApplyBox:
    """A machine without profiles and keys."""
    return ApplyBox(tmp_path)


def test_an_untouched_box_says_what_the_gateway_assumes(box: ApplyBox) -> None:
    """The file is there, and nobody is told, because nothing is new."""
    assert box.apply("") == Exit.OK
    assert (box.told.addresses, box.told.port) == (("127.0.0.1", "::1"), 8010)
    assert not box.drop_in(SOCKET_DROP_IN).exists()
    box.apply("")
    assert box.manager.calls == []
    assert "nothing to change" in box.out


def test_without_a_key_the_gateway_stays_on_this_machine(box: ApplyBox) -> None:
    """One sentence says why and what to do; the rest of the settings is put in force."""
    assert box.apply(WIDE + "max_queue = 7\n") == Exit.CONFIG
    assert 'stays on this machine: "10.10.10.1" in gateway.listen is beyond it' in box.err
    assert "appliance key add NAME, then sudo appliance apply" in box.err
    assert box.told.beyond_loopback() == ()
    assert box.told.limits.queue == 7
    assert not box.drop_in(SOCKET_DROP_IN).exists()


def test_with_a_key_it_listens_where_it_is_told_to(box: ApplyBox) -> None:
    """The socket's drop-in is written, systemd reads it, and the gateway hands over."""
    box.keys.add(Key(name="phone"), 1.0)
    assert box.apply(WIDE) == Exit.OK
    assert box.told.beyond_loopback() == ("10.10.10.1", "wg0")
    assert "ListenStream=10.10.10.1:8010\n" in box.drop_in(SOCKET_DROP_IN).read_text()
    assert box.manager.calls == ["daemon-reload", "reload supervisor", "reload gateway"]
    assert f"create {SOCKET_DROP_IN}" in box.out
    assert "changed the gateway's configuration" in box.out
    assert box.apply(WIDE) == Exit.OK
    assert box.manager.calls == []


def test_the_usual_settings_take_the_drop_in_away(box: ApplyBox) -> None:
    """And the directory that it was in, with apply's own copy."""
    box.keys.add(Key(name="phone"), 1.0)
    box.apply(WIDE)
    assert box.apply("") == Exit.OK
    assert list((box.root / "units").iterdir()) == []
    assert not [p for p in (box.root / "applied" / "units").iterdir() if "gateway" in p.name]
    assert box.manager.calls[-1] == "reload gateway"


def test_a_limit_alone_is_no_matter_for_systemd(box: ApplyBox) -> None:
    """Only the gateway is told."""
    box.apply("")
    assert box.apply("max_queue = 7\n") == Exit.OK
    assert box.manager.calls == ["reload gateway"]


def test_a_dry_run_tells_nobody(box: ApplyBox) -> None:
    """A dry run says what it would do, and writes nothing."""
    box.keys.add(Key(name="phone"), 1.0)
    box.apply("")
    assert box.apply(WIDE, dry_run=True) == Exit.OK
    assert f"would create {SOCKET_DROP_IN}" in box.out
    assert "would change the gateway's configuration" in box.out
    assert box.told.beyond_loopback() == ()
    assert box.manager.calls == []


def test_a_hand_edit_stays_until_it_is_dropped(box: ApplyBox) -> None:
    """As with units: shown, left, and overwritten only on request."""
    box.apply("port = 9010\n")
    file = box.drop_in(SOCKET_DROP_IN)
    written = file.read_text()
    file.write_text(written.replace("9010", "9011"))
    assert box.apply("port = 9010\n") == Exit.FAILED
    assert f"{SOCKET_DROP_IN} was changed by hand" in box.out
    assert "-ListenStream=127.0.0.1:9010" in box.out
    assert "9011" in file.read_text()
    assert box.apply("port = 9010\n", discard=True) == Exit.OK
    assert file.read_text() == written


def test_somebody_elses_drop_ins_are_left_alone(box: ApplyBox) -> None:
    """`systemctl edit` of the gateway is the operator's affair."""
    other = box.drop_in(SERVICE_DROP_IN).parent / "override.conf"
    other.parent.mkdir()
    other.write_text("[Service]\nNice=1\n")
    assert box.apply("") == Exit.OK
    assert other.exists()
    assert "override.conf" not in box.out


def test_a_damaged_file_is_written_anew(box: ApplyBox) -> None:
    """And the gateway is told, since nobody knows what it read."""
    box.apply("")
    (box.root / "applied" / "gateway.json").write_text("{")
    assert box.apply("") == Exit.OK
    assert box.told == box.told.on_loopback()
    assert box.manager.calls == ["reload gateway"]


def test_keys_for_everybody_and_no_key(box: ApplyBox) -> None:
    """Keys for all clients without a key are allowed, with a warning."""
    assert box.apply('require_keys = "always"\n') == Exit.OK
    assert "no client can use the gateway" in box.err


def test_tls_files_are_handed_over_by_systemd(box: ApplyBox) -> None:
    """The service has to be restarted for that, which is said."""
    box.keys.add(Key(name="phone"), 1.0)
    certificate, key = self_signed(box.root, "a")
    text = f'{WIDE}tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    assert box.apply(text) == Exit.OK
    assert f"LoadCredential=tls.key:{key}\n" in box.drop_in(SERVICE_DROP_IN).read_text()
    assert "sudo systemctl restart appliance-gateway.service" in box.out
    assert box.told.tls


def test_without_a_good_certificate_nothing_goes_out(box: ApplyBox) -> None:
    """Never in the clear where TLS was asked for."""
    box.keys.add(Key(name="phone"), 1.0)
    (one, _), (_, other) = self_signed(box.root, "a"), self_signed(box.root, "b")
    text = f'{WIDE}tls_certificate = "{one}"\ntls_key = "{other}"\n'
    assert box.apply(text) == Exit.CONFIG
    assert "do not make a pair that can be used (key values mismatch)" in box.err
    assert box.told.beyond_loopback() == ()
    assert not box.drop_in(SERVICE_DROP_IN).exists()


def test_files_with_secrets_are_looked_at(tmp_path: Path) -> None:
    """A missing file, a directory, an open one, one that is no PEM, and good ones."""
    certificate, key = self_signed(tmp_path, "a")
    assert certificate_problem(certificate, key) is None
    assert secret_problem(key) is None
    key.chmod(0o644)
    assert secret_problem(key) == f"every user can read {key}: chmod 600 {key}"
    assert secret_problem(tmp_path) == f"{tmp_path} is no regular file"
    gone = tmp_path / "gone"
    assert secret_problem(gone) == f"{gone}: No such file or directory"
    assert certificate_problem(certificate, gone) == f"{gone} does not exist"
    key.write_text("no PEM")
    assert "do not make a pair" in (certificate_problem(certificate, key) or "")


def test_an_engines_key_is_named_and_never_read(box: ApplyBox) -> None:
    """A key's path alone is in the manifest and the drop-in; an open file gives a warning."""
    key = box.root / "m.key"
    key.write_text("s3cret")
    text = f'{PROFILE}[gateway]\nengine_key_file = "{key}"\n'
    (box.root / "profiles" / "m.toml").write_text(text)
    assert box.apply("", as_json=True) == Exit.OK
    assert f"LoadCredential=engine-key.m:{key}\n" in box.drop_in(SERVICE_DROP_IN).read_text()
    assert f"m: the engine's key: every user can read {key}" in box.err
    texts = [p.read_text() for p in (box.root / "applied").rglob("*") if p.is_file()]
    assert not any("s3cret" in t for t in texts)


def test_apply_tells_a_key_of_an_engine_that_waits_for_a_restart(tmp_path: Path) -> None:
    """A new key in the same file changes no unit: the gateway's own credential is compared with it."""
    key, credentials = tmp_path / "key", tmp_path / "credentials"
    key.write_text("old")
    key.chmod(0o600)
    catalogue = {"m": made("m", handling=Handling(engine_key_file=str(key)))}
    assert list(engine_key_warnings(catalogue, credentials)) == [], "a gateway that does not run"
    credentials.mkdir()
    (warning,) = engine_key_warnings(catalogue, credentials)
    assert warning.endswith("after a restart: sudo systemctl restart appliance-gateway.service")
    (credentials / "engine-key.m").write_text("old")
    assert list(engine_key_warnings(catalogue, credentials)) == []
    key.write_text("new")
    assert list(engine_key_warnings(catalogue, credentials)) == [warning]


WEB_WIDE = 'listen = ["127.0.0.1", "::1", "10.10.10.1"]\n'
REOPENED = "reopen appliance-web.socket, appliance-web.service"
OF_ROOT = OperatorToken(name="phone", uid=0, user="root")


@pytest.fixture
def web_box(tmp_path: Path) -> ApplyBox:
    return ApplyBox(tmp_path)


def drop_in(web_box: ApplyBox) -> str:
    """The drop-in of the socket; empty: there is none."""
    path = web_box.drop_in(WEB_DROP_IN)
    return path.read_text() if path.exists() else ""


def test_without_a_token_the_page_stays_on_this_machine(web_box: ApplyBox) -> None:
    """One sentence says why and what to do; nothing is written, and nothing opened."""
    assert web_box.apply("", web=WEB_WIDE) == Exit.CONFIG
    assert 'stays on this machine: "10.10.10.1" in web.listen is beyond it' in web_box.err
    assert "appliance token add NAME, then sudo appliance apply" in web_box.err
    assert drop_in(web_box) == ""
    assert REOPENED not in web_box.manager.calls


def test_with_a_token_it_listens_where_it_is_told_to(web_box: ApplyBox) -> None:
    """Systemd reads the drop-in before the socket is opened anew; a second apply does nothing."""
    web_box.tokens.add(OF_ROOT, "root", 1.0)
    web_box.apply("")
    assert web_box.apply("", web=WEB_WIDE) == Exit.OK
    assert "ListenStream=10.10.10.1:8011\nListenNetlink=inet-diag\nIPAddressAllow=any\n" in drop_in(
        web_box
    )
    assert web_box.manager.calls == ["daemon-reload", "reload supervisor", REOPENED]
    assert "signs in again" in web_box.out
    assert web_box.apply("", web=WEB_WIDE) == Exit.OK
    assert web_box.manager.calls == []
    assert "nothing to change" in web_box.out


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
    web_box: ApplyBox, token: OperatorToken | None
) -> None:
    """By the next apply, whether the token was removed or is of no use any more."""
    _, made = web_box.tokens.add(OF_ROOT, "root", 1.0)
    web_box.apply("", web=WEB_WIDE)
    web_box.tokens.remove(frozenset({made.id}))
    if token is not None:
        web_box.tokens.add(token, "root", 1.0)
    assert web_box.apply("", web=WEB_WIDE) == Exit.CONFIG
    assert drop_in(web_box) == ""
    assert web_box.manager.calls[-1] == REOPENED


def test_without_the_setting_it_is_closed(web_box: ApplyBox) -> None:
    """The drop-in goes with the setting, and its directory too."""
    web_box.tokens.add(OF_ROOT, "root", 1.0)
    web_box.apply("", web=WEB_WIDE)
    assert web_box.apply("") == Exit.OK
    assert not web_box.drop_in(WEB_DROP_IN).parent.exists()
    assert web_box.manager.calls[-1] == REOPENED


def test_damaged_tokens_are_none(web_box: ApplyBox) -> None:
    """Without a file that can be read no operator acts by one."""
    web_box.tokens.add(OF_ROOT, "root", 1.0)
    (web_box.root / "state/tokens.json").write_text("{")
    assert web_box.apply("", web=WEB_WIDE) == Exit.CONFIG
    assert drop_in(web_box) == ""


def test_a_socket_that_does_not_open_is_told(web_box: ApplyBox) -> None:
    """As when another program has the port."""
    web_box.tokens.add(OF_ROOT, "root", 1.0)
    web_box.manager.opens = False
    assert web_box.apply("", web=WEB_WIDE) == Exit.CONFIG
    assert "the page does not listen: systemctl status appliance-web.socket" in web_box.err


def test_a_dry_run_opens_nothing(web_box: ApplyBox) -> None:
    """A dry run tells what it would write."""
    web_box.tokens.add(OF_ROOT, "root", 1.0)
    assert web_box.apply("", web=WEB_WIDE, dry_run=True) == Exit.OK
    assert f"would create {WEB_DROP_IN}" in web_box.out
    assert web_box.manager.calls == []
