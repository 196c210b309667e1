"""Addresses that are open: this machine's always, others while a token exists, strangers never."""

import asyncio
import logging

import pytest

from appliance.model.errors import UnreachableError
from appliance.model.web_addresses import WebAddresses
from appliance.web.open_addresses import ASK_EVERY_S, OpenAddresses, is_of_this_machine
from tests.fakes.virtual_time import advance

NAMED = WebAddresses(addresses=("127.0.0.1", "10.20.0.1"))
BOUND = [("127.0.0.1", 8011), ("10.20.0.1", 8011), ("10.20.0.1", 8099), ("192.168.1.9", 8011)]


class FakeSupervisor:
    """Supervisor that says whether a token is usable; None: it does not answer."""

    def __init__(self, *, answer: bool | None) -> None:
        self.answer = answer
        self.asked = 0

    async def is_any_usable(self) -> bool:
        """Answer, and count it."""
        self.asked += 1
        if self.answer is None:
            raise UnreachableError("supervisor not running")
        return self.answer


def admitted(addresses: OpenAddresses) -> list[tuple[str, int]]:
    return [one for one in BOUND if addresses.admits(*one)]


async def test_other_machines_are_let_in_while_a_token_exists() -> None:
    """Closed until the supervisor has said so, and again once the last token is gone."""
    supervisor = FakeSupervisor(answer=None)
    addresses = OpenAddresses(NAMED, BOUND, supervisor.is_any_usable)
    for answer, expected in ((None, 1), (False, 1), (True, 2), (None, 2), (False, 1)):
        supervisor.answer = answer
        await addresses.ask()
        assert admitted(addresses) == BOUND[:expected]


async def test_an_address_that_nobody_has_named_is_never_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A drop-in by hand, or one that remained: the journal names it, with the way to open it."""
    supervisor = FakeSupervisor(answer=True)
    addresses = OpenAddresses(WebAddresses(), BOUND, supervisor.is_any_usable)
    await addresses.ask()
    assert admitted(addresses) == BOUND[:1]
    assert supervisor.asked == 0
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert [text.partition(", which")[0] for text in told] == [
        "appliance-web.socket listens on 10.20.0.1 port 8011",
        "appliance-web.socket listens on 10.20.0.1 port 8099",
        "appliance-web.socket listens on 192.168.1.9 port 8011",
    ]
    assert "list it in web.listen, then sudo appliance apply" in told[0]


async def test_a_wildcard_by_hand_opens_what_is_named_alone() -> None:
    """Each connection tells the address that its client has used."""
    supervisor = FakeSupervisor(answer=True)
    wildcard = [("0.0.0.0", 8011)]  # noqa: S104 - not bound
    addresses = OpenAddresses(NAMED, wildcard, supervisor.is_any_usable)
    await addresses.ask()
    assert admitted(addresses) == BOUND[:1]


@pytest.mark.virtual_time
async def test_the_supervisor_is_asked_again_and_again() -> None:
    """Asking goes on, so that a removed token closes the addresses, and a new one opens them, within seconds."""
    supervisor = FakeSupervisor(answer=True)
    addresses = OpenAddresses(NAMED, BOUND, supervisor.is_any_usable)
    task = asyncio.create_task(addresses.follow())
    await advance(ASK_EVERY_S + 0.1)
    assert admitted(addresses) == BOUND[:2]
    supervisor.answer = False
    await advance(ASK_EVERY_S)
    assert admitted(addresses) == BOUND[:1]
    task.cancel()
    await asyncio.wait({task})
    assert supervisor.asked == 2


@pytest.mark.parametrize(
    ("server", "client", "is_own"),
    [
        (("127.0.0.1", 8011), ("127.0.0.1", 5000), True),
        (("::1", 8011), ("::1", 5000), True),
        (("10.20.0.1", 8011), ("10.20.0.1", 5000), False),
        (("127.0.0.1", 8011), ("10.20.0.2", 5000), False),
        (("127.0.0.1", 8011), None, False),
        (None, ("127.0.0.1", 5000), False),
    ],
)
def test_both_ends_tell_that_a_client_is_of_this_machine(
    server: tuple[str, int] | None, client: tuple[str, int] | None, *, is_own: bool
) -> None:
    """Packets from elsewhere may be forwarded to 127.0.0.1; an end that is not known is another machine's."""
    assert is_of_this_machine(server, client) is is_own
