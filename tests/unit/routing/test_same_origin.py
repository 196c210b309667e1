"""Names by which the web process is asked, and pages that may ask for a change."""

import pytest

from appliance.routing.same_origin import SameOriginPolicy

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
