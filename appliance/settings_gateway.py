"""Settings ``[gateway]``, and their compilation by `appliance apply`."""

import re
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import NoDecode

from appliance.adapters.toml.tables import AbsolutePath, Deadline, Duration, Port, Size, wrong
from appliance.domain.gateway import Configuration, Limits
from appliance.domain.value_types import TypeName, shown

_INTERFACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}\Z")
"""Pattern of an interface's name, which has at most IFNAMSIZ bytes (netdevice(7))."""
_PATH: Final = re.compile(r"/[A-Za-z0-9._~/-]{0,127}\*?\Z")
_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?\Z")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]{0,31}://[A-Za-z0-9._:\[\]-]{1,255}\Z")
_MOST_ADDRESSES: Final = 32


def split_list(value: Any) -> Any:
    """Split the value of a variable, which lists items with spaces or commas between them."""
    return value.replace(",", " ").split() if isinstance(value, str) else value


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
    if address.is_multicast or "%" in text:
        raise wrong(f"{shown(text)} cannot be listened on: list its interface in place of it")
    return str(address)


def _no_doubles(items: Sequence[str]) -> Sequence[str]:
    if len(set(items)) != len(items):
        raise wrong("lists an address or interface twice")
    return items


def _url_path(text: str) -> str:
    if _PATH.match(text) is None:
        raise wrong(f"{shown(text)} is not a path such as /metrics or /slots/*")
    return text


def _host_name(text: str) -> str:
    if _NAME.match(text) is None:
        raise wrong(f"{shown(text)} is not a host name such as models.example.org")
    return text.lower()


def _origin(text: str) -> str:
    if text != "null" and _ORIGIN.match(text) is None:
        raise wrong(f"{shown(text)} is not an origin such as https://chat.example.org:8443")
    return text.lower()


Places = Annotated[
    list[Annotated[str, AfterValidator(_place), TypeName("address or interface")]],
    NoDecode,
    BeforeValidator(split_list),
    Field(min_length=1, max_length=_MOST_ADDRESSES),
    AfterValidator(_no_doubles),
]
UrlPaths = Annotated[
    list[Annotated[str, AfterValidator(_url_path), TypeName("URL path")]],
    NoDecode,
    BeforeValidator(split_list),
    Field(max_length=64),
]
Names = Annotated[
    list[Annotated[str, AfterValidator(_host_name), TypeName("host name")]],
    NoDecode,
    BeforeValidator(split_list),
    Field(max_length=64),
]
Origins = Annotated[
    list[Annotated[str, AfterValidator(_origin), TypeName("origin")]],
    NoDecode,
    BeforeValidator(split_list),
    Field(max_length=64),
]
MemorySize = Annotated[Size, Field(ge=1 << 16, le=1 << 29)]
"""Size in memory, at most as much as the unit's MemoryMax= leaves."""


class GatewaySettings(BaseModel):
    """``[gateway]``: address and limits of the gateway. `appliance apply` puts changes in force."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    port: Port = Field(default=8010, description="port of the gateway; no profile may use it")
    listen: Places = Field(
        default=["127.0.0.1"],
        description="addresses to listen on, and names of network interfaces, which may appear later; other "
        "machines need keys",
    )
    tls_certificate: AbsolutePath | None = Field(
        default=None,
        description="PEM file with the whole chain; the gateway then speaks TLS with other machines",
    )
    tls_key: AbsolutePath | None = Field(
        default=None, description="PEM file with its private key, readable for root alone"
    )
    require_keys: Literal["beyond-loopback", "always"] = Field(
        default="beyond-loopback",
        description="clients that need a key: those on other machines, or all",
    )
    allow_paths: UrlPaths = Field(
        default=[],
        description="engines' administrative paths that clients may use all the same, such as "
        '"/metrics"',
    )
    names: Names = Field(
        default=[],
        description="further host names of this machine, by which its programs may send requests without a "
        "key, such as behind a reverse proxy",
    )
    origins: Origins = Field(
        default=[],
        description="origins of web pages that may send requests without a key from a browser on this "
        'machine, such as "https://chat.example.org"',
    )
    drain: Deadline = Field(
        default=600.0,
        description="time for requests in flight when a reload or an upgrade hands over to a new process",
    )
    stop: Annotated[Duration, Field(le=300)] = Field(
        default=10.0,
        description="time for requests in flight when the gateway is stopped or restarted; a request "
        "that is cut gets an error",
    )
    max_wait: Deadline = Field(
        default=300.0, description="time that a request waits for a switch or a start"
    )
    min_residency: Duration = Field(
        default=60.0,
        description="time that a model stays at least after a switch on request",
    )
    max_queue: Annotated[int, Field(ge=0, le=65_536)] = Field(
        default=256,
        description="requests that may wait at once; more get an error with Retry-After",
    )
    max_connections: Annotated[int, Field(ge=8, le=16_384)] = Field(
        default=1024, description="connections of clients at once"
    )
    max_body: MemorySize = Field(
        default=64 << 20, description="size of a request's body, such as one with pictures"
    )
    max_buffered: MemorySize = Field(
        default=160 << 20, description="size of all bodies together that are being read or wait"
    )
    idle: Deadline = Field(
        default=75.0, description="time until a connection without a request is closed"
    )

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise wrong("needs both tls_certificate and tls_key, or neither")
        if self.max_buffered < self.max_body:
            raise wrong("has a max_buffered that is smaller than its max_body")
        return self

    def compiled(
        self, *, state_dir: Path, request_socket: Path, log_level: str, loopback_only: bool = False
    ) -> Configuration:
        """Return the configuration that the gateway reads.

        Args:
            state_dir: Directory of the keys.
            request_socket: The supervisor's socket for the gateway.
            log_level: Of the gateway's log.
            loopback_only: Leave out addresses that other machines can reach.
        """
        addresses = tuple(text for text in self.listen if _is_address(text))
        found = Configuration(
            port=self.port,
            addresses=addresses,
            interfaces=tuple(text for text in self.listen if text not in addresses),
            tls=self.tls_certificate is not None,
            keys_always=self.require_keys == "always",
            limits=Limits(
                body_bytes=self.max_body,
                buffered_bytes=self.max_buffered,
                connections=self.max_connections,
                idle_s=self.idle,
                queue=self.max_queue,
                wait_s=self.max_wait,
            ),
            drain_s=self.drain,
            stop_s=self.stop,
            min_residency_s=self.min_residency,
            allow_paths=tuple(self.allow_paths),
            names=tuple(self.names),
            origins=tuple(self.origins),
            state_dir=str(state_dir),
            request_socket=str(request_socket),
            log_level=log_level,
        )
        return found.on_loopback() if loopback_only else found


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
