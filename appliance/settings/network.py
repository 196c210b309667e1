"""Values of settings about networks, which several tables share: addresses, interfaces and host names."""

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from appliance.model.value_types import TypeName, shown
from appliance.system.toml.tables import wrong

_INTERFACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}\Z")
"""Pattern of an interface's name, which has at most IFNAMSIZ bytes (netdevice(7))."""
_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?\Z")
_MOST_ADDRESSES: Final = 32


def split_list(value: Any) -> Any:
    """Split the value of a variable, which lists items with spaces or commas between them."""
    return value.replace(",", " ").split() if isinstance(value, str) else value


def is_address(text: str) -> bool:
    """Tell an address from the name of an interface."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _place(text: str) -> str:
    """Return an address in its shortest form, or the name of an interface."""
    try:
        address = ip_address(text)
    except ValueError as error:
        if _INTERFACE.match(text) is None or text.replace(".", "").isdigit():
            raise wrong(f"{shown(text)} is neither an address nor an interface") from error
        return text
    if address.is_unspecified:
        raise wrong(f"{shown(text)} is a wildcard: list the addresses to listen on")
    # An address fe80::… is bound with its interface alone, so systemd would refuse its whole unit.
    if (
        address.is_multicast
        or "%" in text
        or (isinstance(address, IPv6Address) and address.is_link_local)
    ):
        raise wrong(f"{shown(text)} cannot be listened on: list its interface in place of it")
    return str(address)


def _address(text: str) -> str:
    """Return an address in its shortest form."""
    place = _place(text)
    if not is_address(place):
        raise wrong(f"{shown(text)} is no address; of an interface list the addresses")
    return place


def _no_doubles(items: Sequence[str]) -> Sequence[str]:
    if len(set(items)) != len(items):
        raise wrong("lists an address or interface twice")
    return items


def _host_name(text: str) -> str:
    if _NAME.match(text) is None:
        raise wrong(f"{shown(text)} is not a host name such as models.example.org")
    return text.lower()


Places = Annotated[
    list[Annotated[str, AfterValidator(_place), TypeName("address or interface")]],
    NoDecode,
    BeforeValidator(split_list),
    Field(min_length=1, max_length=_MOST_ADDRESSES),
    AfterValidator(_no_doubles),
]
Addresses = Annotated[
    list[Annotated[str, AfterValidator(_address), TypeName("address")]],
    NoDecode,
    BeforeValidator(split_list),
    Field(min_length=1, max_length=_MOST_ADDRESSES),
    AfterValidator(_no_doubles),
]
Names = Annotated[
    list[Annotated[str, AfterValidator(_host_name), TypeName("host name")]],
    NoDecode,
    BeforeValidator(split_list),
    Field(max_length=64),
]
