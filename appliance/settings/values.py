"""Types of the values that settings take, beside those that profiles take too (`appliance.model.value_types`)."""

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from appliance.model.names import is_profile_name
from appliance.model.value_types import (
    Check,
    Length,
    Range,
    Size,
    TypeName,
    ValueParser,
    WrongValueError,
    shown,
)

_INTERFACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}\Z")
"""Pattern of an interface's name, which has at most IFNAMSIZ bytes (netdevice(7))."""
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?\Z")
_URL_PATH: Final = re.compile(r"/[A-Za-z0-9._~/-]{0,127}\*?\Z")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]{0,31}://[A-Za-z0-9._:\[\]-]{1,255}\Z")
_SPAN: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d\Z")
_MOST_URL: Final = 1024
_WATCHED_SUFFIXES: Final = (".service", ".socket", ".target", ".timer", ".mount")
_FOREIGN_SUFFIXES: Final = (".service", ".target", ".scope", ".socket")


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
            raise WrongValueError(
                f"{shown(text)} is neither an address nor an interface"
            ) from error
        return text
    if address.is_unspecified:
        raise WrongValueError(f"{shown(text)} is a wildcard: list the addresses to listen on")
    # An address fe80::… is bound with its interface alone, so systemd would refuse its whole unit.
    if (
        address.is_multicast
        or "%" in text
        or (isinstance(address, IPv6Address) and address.is_link_local)
    ):
        raise WrongValueError(
            f"{shown(text)} cannot be listened on: list its interface in place of it"
        )
    return str(address)


def _address(text: str) -> str:
    """Return an address in its shortest form."""
    place = _place(text)
    if not is_address(place):
        raise WrongValueError(f"{shown(text)} is no address; of an interface list the addresses")
    return place


def _no_doubles(items: Sequence[str]) -> Sequence[str]:
    if len(set(items)) != len(items):
        raise WrongValueError("lists an address or interface twice")
    return items


def _host_name(text: str) -> str:
    if _HOST_NAME.match(text) is None:
        raise WrongValueError(f"{shown(text)} is not a host name such as models.example.org")
    return text.lower()


def _url_path(text: str) -> str:
    if _URL_PATH.match(text) is None:
        raise WrongValueError(f"{shown(text)} is not a path such as /metrics or /slots/*")
    return text


def _origin(text: str) -> str:
    if text != "null" and _ORIGIN.match(text) is None:
        raise WrongValueError(
            f"{shown(text)} is not an origin such as https://chat.example.org:8443"
        )
    return text.lower()


def _span(text: str) -> str:
    if text and _SPAN.match(text) is None:
        raise WrongValueError(f"{shown(text)} is not a span of local time such as 22:00-07:00")
    return text


def _zone(text: str) -> str:
    try:
        if text:
            ZoneInfo(text)
    except (LookupError, OSError, ValueError) as error:
        raise WrongValueError(f"{shown(text)} is not a time zone such as Europe/Rome") from error
    return text


def _watch_name(text: str) -> str:
    if not is_profile_name(text):
        raise WrongValueError(
            f"{shown(text)} is not a name of small letters, digits, dots and dashes"
        )
    return text


def _url(text: str) -> str:
    if not _is_url(text):
        raise WrongValueError(f"{shown(text)} is not a URL such as https://box.example:8443/health")
    if "@" in urlsplit(text).netloc:
        raise WrongValueError(
            "holds a user or a password: an address that is watched takes no credential"
        )
    return text


def _url_or_empty(text: str) -> str:
    return _url(text) if text else text


def _is_url(text: str) -> bool:
    """Tell whether a text is an HTTP address in printable ASCII."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    return usable and text.isascii() and text.isprintable() and " " not in text


def _watched_unit(text: str) -> str:
    if not text.endswith(_WATCHED_SUFFIXES) or "/" in text:
        raise WrongValueError(f'{shown(text)} is not the name of a unit, such as "vllm.service"')
    return text


def _foreign_unit(text: str) -> str:
    if not text.endswith(_FOREIGN_SUFFIXES) or "/" in text:
        raise WrongValueError(f'"{text}" is not the name of a unit, such as vllm.service')
    if text.startswith("appliance-"):
        raise WrongValueError(f'"{text}" is one of the appliance\'s own units')
    return text


def _location(value: object) -> Path:
    text = str(value)
    if not isinstance(value, str | Path) or not text.startswith("/") or ".." in Path(text).parts:
        raise WrongValueError(f"{shown(text)} is not an absolute path without ..")
    if not text.isprintable():
        raise WrongValueError("contains a control character")
    return Path(text)


Location = Annotated[Path, ValueParser(_location), TypeName("path")]
_Place = Annotated[str, Check(_place), TypeName("address or interface")]
_Address = Annotated[str, Check(_address), TypeName("address")]
_HostName = Annotated[str, Check(_host_name), TypeName("host name")]
_UrlPath = Annotated[str, Check(_url_path), TypeName("URL path")]
_Origin = Annotated[str, Check(_origin), TypeName("origin")]
_ForeignUnit = Annotated[str, Check(_foreign_unit), TypeName("unit")]
Places = Annotated[tuple[_Place, ...], Length(least=1, most=32), Check(_no_doubles)]
Addresses = Annotated[tuple[_Address, ...], Length(least=1, most=32), Check(_no_doubles)]
HostNames = Annotated[tuple[_HostName, ...], Length(most=64)]
UrlPaths = Annotated[tuple[_UrlPath, ...], Length(most=64)]
Origins = Annotated[tuple[_Origin, ...], Length(most=64)]
ForeignUnits = tuple[_ForeignUnit, ...]
MemorySize = Annotated[Size, Range(least=1 << 16, most=1 << 29)]
"""Size in memory, at most as much as the unit's MemoryMax= leaves."""
TimeZone = Annotated[str, Check(_zone), TypeName("time zone")]
TimeSpan = Annotated[str, Check(_span), TypeName("span of local time")]
WatchName = Annotated[str, Check(_watch_name), TypeName("name")]
WatchedUnit = Annotated[str, Check(_watched_unit), TypeName("unit")]
Url = Annotated[str, Length(most=_MOST_URL), Check(_url), TypeName("URL")]
UrlOrEmpty = Annotated[str, Length(most=_MOST_URL), Check(_url_or_empty), TypeName("URL")]
