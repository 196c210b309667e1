"""Addresses of targets: what they mean, and that no error shows one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.alerts import Severity
from appliance.model.targets import (
    NtfyAddress,
    Target,
    Targets,
    check_name,
    check_web_address,
    is_told,
    kind_of,
    ntfy_address,
)
from appliance.model.value_types import WrongValueError


def at(host: str, port: int, *, tls: bool, topic: str = "t", auth: str = "") -> NtfyAddress:
    return NtfyAddress(host=host, port=port, is_encrypted=tls, topic=topic, authorization=auth)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ntfy://Alerts_1", at("ntfy.sh", 443, tls=True, topic="Alerts_1")),
        ("ntfys://t", at("ntfy.sh", 443, tls=True)),
        ("ntfy://ntfy.sh/t", at("ntfy.sh", 443, tls=True)),
        ("ntfy://box.lan/t", at("box.lan", 80, tls=False)),
        ("ntfy://box.lan:8080/t/", at("box.lan", 8080, tls=False)),
        ("ntfys://box.lan/t", at("box.lan", 443, tls=True)),
        ("https://Push.Example/t", at("push.example", 443, tls=True)),
        ("http://[fd00::1]:81/t", at("fd00::1", 81, tls=False)),
        ("ntfys://u:p%40s@h/t", at("h", 443, tls=True, auth="Basic dTpwQHM=")),
        ("ntfys://u@h/t", at("h", 443, tls=True, auth="Basic dTo=")),
        ("ntfys://tk_abc@h/t", at("h", 443, tls=True, auth="Bearer tk_abc")),
        ("ntfys://:tk_abc@h/t", at("h", 443, tls=True, auth="Bearer tk_abc")),
        ("discord://1/2", None),
        ("https://discord.com/api/webhooks/1/2", None),
        ("https://h/t?x=1", None),
    ],
)
def test_an_address_names_a_topic_or_is_for_apprise(url: str, expected: NtfyAddress | None) -> None:
    """Forms of ntfy's own, of apprise and of the topic's page mean the same topic."""
    assert ntfy_address(url) == expected
    assert kind_of(url) == ("ntfy" if expected else url.partition(":")[0])


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "is no address"),
        ("genesis", "is no address"),
        ("ntfy://", "is no address"),
        ("ntfy://h:0/t", "is no address"),
        ("ntfy://h:x/t", "is no address"),
        ("ntfy://[::1/t", "is no address"),
        ("ntfy://h/t u", "has blanks"),
        ("ntfy://h/ü", "has blanks"),
        ("ntfy://h/t\r\nX: y", "has blanks"),
        ("ntfy://h/a/b", "names no topic"),
        ("ntfy://u:p@h", "names no topic"),
        ("ntfy://h/t?priority=5", "has a query"),
        ("ntfy://h/t#x", "has a query"),
        ("ntfys://tk_%0d%0aX@h/t", "has a token that no header can hold"),
        ("ntfy://" + "x" * 2048, "is longer than 2048"),
    ],
)
def test_an_address_that_no_service_has_is_refused(url: str, fault: str) -> None:
    """The error says what is wrong with the address."""
    with pytest.raises(WrongValueError, match=fault):
        ntfy_address(url)


SECRET = "sEcReT9"  # noqa: S105 - it opens nothing
PIECES = st.lists(
    st.sampled_from(
        ["ntfy", "ntfys", "https", "://", ":", "@", "/", "?", "#", "[", "%0a", " ", "h"]
    ),
    max_size=8,
)


@given(before=PIECES, after=PIECES)
def test_no_error_and_no_repr_shows_a_secret(before: list[str], after: list[str]) -> None:
    """Errors and reprs have no part of a secret, whatever surrounds it in an address."""
    url = "".join([*before, SECRET, *after])
    try:
        address = ntfy_address(url)
    except WrongValueError as error:
        assert SECRET.lower() not in str(error).lower()  # noqa: PT017 - not every address is wrong
        return
    shown = repr(Targets(targets=(Target(name="n", url=url, click_url=url),), heartbeat_url=url))
    assert SECRET not in shown
    if address is not None and SECRET.lower() not in address.host:
        assert SECRET.lower() not in repr(address).lower()


def test_a_phone_subscribes_without_a_credential() -> None:
    """The link for a phone has server and topic, and says where there is no encryption."""
    for url, link in (
        ("ntfys://u:p@box.lan/t", "ntfy://box.lan/t"),
        ("ntfy://box.lan:8080/t", "ntfy://box.lan:8080/t?secure=false"),
        ("ntfy://[fd00::1]/t", "ntfy://[fd00::1]/t?secure=false"),
        ("ntfy://t", "ntfy://ntfy.sh/t"),
    ):
        address = ntfy_address(url)
        assert address is not None
        assert address.subscription == link


def test_a_target_is_told_of_what_is_as_severe_as_it_wants() -> None:
    """A target for warnings is told of critical alerts too, and not of information."""
    told = [severity for severity in Severity if is_told(Severity.WARNING, severity)]
    assert told == [Severity.CRITICAL, Severity.WARNING]


def test_names_and_addresses_for_requests_are_checked() -> None:
    """A name is a short word in small letters; an outside watch has an address of the web."""
    assert check_name("my-phone_2") == "my-phone_2"
    for name in ("", "Phone", "a b", "-a", "a" * 33, "a\n"):
        with pytest.raises(WrongValueError):
            check_name(name)
    assert check_web_address("https://hc.example/ping/x?a=b") == "https://hc.example/ping/x?a=b"
    for url in ("ntfy://h/t", "https://", "x"):
        with pytest.raises(WrongValueError):
            check_web_address(url)
