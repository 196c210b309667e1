"""Lookup of host names: numbers at once, names in threads, and a name service that hangs."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.system.name_lookup import NameLookup, NameLookupError

ADDRESS = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 80))
MOST = 8


class NameService:
    """A name service that answers with what a test says, or hangs until it is let go."""

    def __init__(self, answer: Exception | list[object]) -> None:
        self.go = threading.Event()
        self.go.set()
        self.asked = 0
        self._answer = answer

    def __call__(self, *_: object, **__: object) -> Any:
        self.asked += 1
        self.go.wait(30)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.fixture
def hanging() -> Iterator[NameService]:
    """A name service that hangs for as long as the test lasts."""
    service = NameService([ADDRESS])
    service.go.clear()
    yield service
    service.go.set()


@pytest.mark.parametrize(
    ("host", "address"),
    [("192.0.2.7", "192.0.2.7"), ("2001:db8::7", "2001:db8::7"), ("127.1", "127.0.0.1")],
)
async def test_a_number_needs_no_name_service(host: str, address: str) -> None:
    """A numeric address is known while the name service hangs."""
    service = NameService([])
    assert await NameLookup(service).addresses(host, 80) == [address]
    assert service.asked == 0


async def test_a_name_has_its_first_addresses() -> None:
    """A name with many addresses has its first four."""
    assert await NameLookup(NameService([ADDRESS] * 9)).addresses("box", 80) == ["192.0.2.7"] * 4


@pytest.mark.parametrize(
    ("error", "phrase"),
    [
        (socket.gaierror(socket.EAI_NONAME, "secret"), "name not known"),
        (socket.gaierror(socket.EAI_AGAIN, "secret"), "name service failed"),
        (OSError("secret"), "name not known"),
        (UnicodeError("label too long"), "name not known"),
    ],
)
async def test_a_name_that_is_not_known(error: Exception, phrase: str) -> None:
    """The phrase is ours, whatever the resolver says."""
    with pytest.raises(NameLookupError, match=f"^{phrase}$"):
        await NameLookup(NameService(error)).addresses("box", 80)


async def test_a_name_service_that_hangs_takes_a_bounded_number_of_threads(
    hanging: NameService,
) -> None:
    """Callers wait as long as they want; with all places taken a lookup fails at once."""
    lookup = NameLookup(hanging)
    for _ in range(MOST):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await lookup.addresses("box", 80)
    with pytest.raises(NameLookupError, match="does not answer"):
        await lookup.addresses("box", 80)
    assert hanging.asked == MOST
    hanging.go.set()
    async with asyncio.timeout(30):
        while True:
            try:
                assert await lookup.addresses("box", 80) == ["192.0.2.7"]
                break
            except NameLookupError:
                await asyncio.sleep(0)
