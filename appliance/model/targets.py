"""Targets of alerts: where messages go, and what an address of ntfy means.

Addresses hold secrets: a password, a token, and with ntfy the topic itself. No error and no `repr` here
shows any part of one. Only root and the notifier have them; everybody else knows a target by its name.
"""

import re
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from appliance.model.alerts import Severity
from appliance.model.value_types import WrongValueError

NTFY: Final = "ntfy"
"""Kind of targets that our own sender serves; apprise serves the others."""
PUBLIC_NTFY: Final = "ntfy.sh"
MOST_TARGETS: Final = 16
MOST_ADDRESS: Final = 2048
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCHEMA: Final = re.compile(r"[a-z][a-z0-9+.-]{0,31}")
_WEB: Final = ("http", "https")
_ORDER: Final = tuple(Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Receiver of messages."""

    name: str
    url: str = field(repr=False)
    min_severity: Severity = Severity.INFO
    """Least severe alerts of which it is told."""
    click_url: str = field(default="", repr=False)
    """Address that a tap on a message opens, unless the message has its own."""
    box_silent: bool | None = None
    """Whether it keeps the scheduled message that the box is silent; None: unless it is the public
    server, which takes fewer messages a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Content of the file of the targets."""

    targets: tuple[Target, ...] = ()
    heartbeat_url: str = field(default="", repr=False)
    """Address of an outside watch, asked once a minute; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStanding:
    """Target as the notifier tells it to others."""

    name: str
    kind: str
    """Kind of service: ``ntfy``, or the schema of apprise's address."""
    min_severity: str = ""
    """Least severe alerts of which the target is told."""
    scheduled: bool | None = None
    """Whether it keeps and cancels scheduled messages; None: not tried yet."""
    trouble: str = ""
    """Phrase for people; empty: none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NtfyAddress:
    """Topic of an ntfy server."""

    host: str
    port: int
    is_encrypted: bool
    topic: str = field(repr=False)
    authorization: str = field(default="", repr=False)
    """Value of the header of this name; empty: none."""

    @property
    def server(self) -> str:
        """Return ``host``, with the port where it is not that of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _port(is_encrypted=self.is_encrypted) else f"{host}:{self.port}"

    @property
    def subscription(self) -> str:
        """Return the link that subscribes the Android app to the topic; it holds no credential."""
        return f"ntfy://{self.server}/{self.topic}{'' if self.is_encrypted else '?secure=false'}"


def is_told(target_severity: Severity, severity: Severity) -> bool:
    """Tell whether a target with this least severity is told of an alert of that severity."""
    return _ORDER.index(severity) <= _ORDER.index(target_severity)


def check_name(text: str) -> str:
    """Return the name of a target. Raises `WrongValueError`."""
    if not _NAME.fullmatch(text):
        raise WrongValueError(
            "is no name of up to 32 small letters, digits, dashes and underscores"
        )
    return text


def kind_of(url: str) -> str:
    """Return the kind of a target's address. Raises `WrongValueError`."""
    return NTFY if ntfy_address(url) is not None else _split(url).scheme


def ntfy_address(url: str) -> NtfyAddress | None:
    """Return the topic that an address names; None: the address is of another service, for apprise.

    ``ntfy://TOPIC``, ``ntfy://[USER:PASSWORD@|TOKEN@]HOST[:PORT]/TOPIC``, ``ntfys://…`` with encryption,
    or the address of the topic's page, ``https://HOST/TOPIC``.

    Raises:
        WrongValueError: no service has such an address.
    """
    parts = _split(url)
    path = parts.path.strip("/")
    is_page = parts.scheme in _WEB and _TOPIC.fullmatch(path) is not None and not parts.query
    if parts.scheme not in {"ntfy", "ntfys"} and not is_page:
        return None
    if parts.query or parts.fragment:
        raise WrongValueError("has a query: priority and the like come from each alert")
    host, port = parts.hostname or "", parts.port
    if not path and "@" not in parts.netloc:
        # The case of a topic counts, unlike that of a host.
        host, port, path = PUBLIC_NTFY, None, parts.netloc
    if not _TOPIC.fullmatch(path):
        raise WrongValueError("names no topic of up to 64 letters, digits, dashes and underscores")
    is_encrypted = parts.scheme in {"ntfys", "https"} or host == PUBLIC_NTFY
    return NtfyAddress(
        host=host,
        port=port or _port(is_encrypted=is_encrypted),
        is_encrypted=is_encrypted,
        topic=path,
        authorization=_authorization(parts),
    )


def check_web_address(url: str) -> str:
    """Return an address for HTTP requests. Raises `WrongValueError`."""
    if not url.startswith(("https://", "http://")) or not _split(url).hostname:
        raise WrongValueError("is no address that begins with https:// or http://")
    return url


def _split(url: str) -> SplitResult:
    if len(url) > MOST_ADDRESS:
        raise WrongValueError(f"is longer than {MOST_ADDRESS} characters")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise WrongValueError("has blanks, or characters that belong percent-encoded")
    try:
        parts = urlsplit(url)
        if _SCHEMA.fullmatch(parts.scheme) and parts.netloc and parts.port != 0:
            return parts
    except ValueError:
        pass
    raise WrongValueError("is no address such as ntfys://ntfy.example/topic")


def _authorization(parts: SplitResult) -> str:
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not user and not password:
        return ""
    if not user or (not password and user.startswith("tk_")):
        return _printable(f"Bearer {password or user}")
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def _printable(header: str) -> str:
    """Return a header's value; percent-encoding can hide the end of a line."""
    if not (header.isascii() and header.isprintable()):
        raise WrongValueError("has a token that no header can hold")
    return header


def _port(*, is_encrypted: bool) -> int:
    return 443 if is_encrypted else 80
