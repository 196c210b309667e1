"""Origin policy: programs and own pages need no key on this machine, other pages do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.routing.origin_policy import OriginPolicy, SameOriginPolicy
from appliance.routing.refusals import HOST_REFUSED, ORIGIN_REFUSED

HERE = b"127.0.0.1:8010"
VISITORS = OriginPolicy.of(["Box", "models.example.org"], ["https://Chat.example.org", "null"])
STRICT = OriginPolicy.of([], [])


@pytest.mark.parametrize(
    "host",
    [
        None,
        b"127.0.0.1:8010",
        b"127.0.0.1",
        b"[::1]:8010",
        b"10.10.10.1:8010",
        b"localhost:8010",
        b"LocalHost",
        b"localhost.",
        b"models.localhost:8010",
        b"box:8010",
        b"Models.Example.org",
    ],
)
def test_names_of_this_machine(host: bytes | None) -> None:
    """No web page can be under a host name that is accepted."""
    assert VISITORS.refusal(host, None, None) is None


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example:8010",
        b"notlocalhost",
        b"localhost.evil.example",
        b"127.0.0.1.evil.example:8010",
        b"box.evil.example",
        b"2130706433",
        b"",
    ],
)
def test_names_that_anybody_can_have_mean_this_machine(host: bytes) -> None:
    """A foreign name that resolves to this machine is refused by the header Host."""
    assert VISITORS.refusal(host, None, None) is HOST_REFUSED
    assert VISITORS.refusal(host, b"http://127.0.0.1:8010", b"same-origin") is HOST_REFUSED


@pytest.mark.parametrize(
    "origin",
    [
        b"http://localhost:3000",
        b"https://127.0.0.1",
        b"http://[::1]:8010",
        b"http://chat.localhost",
        b"HTTPS://CHAT.EXAMPLE.ORG",
        b"vscode-webview://1f",
        b"app://obsidian.md",
        b"null",
    ],
)
def test_pages_that_are_welcome(origin: bytes) -> None:
    """Pages of this machine, of programs installed on it, and listed ones need no key."""
    assert VISITORS.refusal(HERE, origin, b"cross-site") is None


@pytest.mark.parametrize(
    "origin",
    [
        b"https://evil.example",
        b"http://chat.example.org",
        b"https://chat.example.org:8443",
        b"http://localhost.evil.example",
        b"http://10.10.10.1",
        b"null",
        b"",
    ],
)
def test_pages_from_elsewhere(origin: bytes) -> None:
    """A page from another origin needs a key."""
    assert STRICT.refusal(HERE, origin, None) is ORIGIN_REFUSED


@pytest.mark.parametrize(
    ("site", "refused"),
    [
        (b"cross-site", True),
        (b" Cross-Site\t", True),
        (b"same-site", False),
        (b"same-origin", False),
        (b"none", False),
    ],
)
def test_a_picture_in_a_page_has_no_origin(site: bytes, refused: bool) -> None:  # noqa: FBT001
    """A cross-site request without an origin is refused by `Sec-Fetch-Site`."""
    assert (STRICT.refusal(HERE, None, site) is ORIGIN_REFUSED) is refused


@given(st.none() | st.binary(), st.none() | st.binary(), st.none() | st.binary())
def test_anything_is_judged(host: bytes | None, origin: bytes | None, site: bytes | None) -> None:
    """Any bytes in the headers lead to a refusal or to none."""
    assert STRICT.refusal(host, origin, site) in {None, HOST_REFUSED, ORIGIN_REFUSED}


@pytest.mark.parametrize(
    "origin", [b" https://CHAT.example.org", b"http://localhost:3000", b"null"]
)
def test_a_page_of_an_allowed_origin_may_read(origin: bytes) -> None:
    """The same origins may send without a key and read what they get."""
    assert VISITORS.allows(origin)
    assert VISITORS.refusal(HERE, origin, None) is None
    assert not STRICT.allows(b"https://chat.example.org")


POLICY = SameOriginPolicy.of(["Garage.lan"])


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("localhost", True),
        ("LOCALHOST:8011", True),
        ("127.0.0.1:9000", True),  # the end of a tunnel
        ("[::1]:8011", True),
        (" garage.lan\t", True),
        ("", False),
        ("garage.lan.evil.example", False),
        ("evil.example", False),
        ("localhost.", True),  # the same name, in full
        ("127.0.0.2", False),
        ("localhost@evil.example", False),
        ("localhost evil.example", False),
    ],
)
def test_only_exact_names_are_known(host: str, *, is_known: bool) -> None:
    """A name that was made to resolve to this machine is none of them."""
    assert POLICY.knows(host) is is_known


@pytest.mark.parametrize(
    ("origin", "site", "may"),
    [
        (None, None, True),  # a program
        ("http://garage.lan:8011", None, True),
        ("https://GARAGE.lan:8011", "same-origin", True),
        (None, "none", True),  # the person at the browser
        ("http://garage.lan:8010", None, False),
        ("http://evil.example", None, False),
        ("null", None, False),
        ("http://garage.lan:8011", "cross-site", False),
        (None, "same-site", False),
        (None, "", False),
    ],
)
def test_only_the_own_page_and_programs_change_anything(
    origin: str | None, site: str | None, *, may: bool
) -> None:
    """Another page cannot hide that it asks; a program says nothing of pages."""
    assert POLICY.may_change("garage.lan:8011", origin, site) is may
