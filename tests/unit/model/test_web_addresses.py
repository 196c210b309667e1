"""Addresses of the status API: which other machines reach, and which nobody has named."""

import pytest

from appliance.model.web_addresses import WebAddresses

NAMED = WebAddresses(port=8012, addresses=("127.0.0.1", "10.20.0.1", "fd00::1"))


def test_what_other_machines_reach_can_be_left_out() -> None:
    """One address always remains, so that the unit of the socket is valid."""
    assert NAMED.beyond_loopback() == ("10.20.0.1", "fd00::1")
    assert NAMED.on_loopback() == WebAddresses(port=8012, addresses=("127.0.0.1",))
    assert WebAddresses(addresses=("10.20.0.1",)).on_loopback() == WebAddresses()
    assert WebAddresses(addresses=("::1", "fd00::1")).on_loopback().addresses == ("::1",)


@pytest.mark.parametrize(
    ("bound", "is_strange"),
    [
        (("127.0.0.1", 8012), False),
        (("127.0.0.1", 1), False),
        (("::1", 1), False),
        (("10.20.0.1", 8012), False),
        (("fd00:0::0:1", 8012), False),
        (("10.20.0.1", 8011), True),
        (("10.20.0.2", 8012), True),
        (("0.0.0.0", 8012), True),  # noqa: S104 - refused
        (("::", 8012), True),
        (("fe80::1%eth0", 8012), True),
    ],
)
def test_a_socket_that_nobody_has_named_is_found(
    bound: tuple[str, int], *, is_strange: bool
) -> None:
    """Another address or port than those of the settings, unless it is of this machine alone."""
    assert NAMED.strangers([bound]) == ((bound,) if is_strange else ())
