"""Settings ``[gateway]``, and their compilation by `appliance apply`."""

import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import NoDecode

from appliance.model.gateway import LOOPBACK_ADDRESSES, Configuration, Limits
from appliance.model.value_types import TypeName, shown
from appliance.settings.network import Names, Places, is_address, split_list
from appliance.system.toml.tables import AbsolutePath, Deadline, Duration, Port, Size, wrong

_PATH: Final = re.compile(r"/[A-Za-z0-9._~/-]{0,127}\*?\Z")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]{0,31}://[A-Za-z0-9._:\[\]-]{1,255}\Z")


def _url_path(text: str) -> str:
    if _PATH.match(text) is None:
        raise wrong(f"{shown(text)} is not a path such as /metrics or /slots/*")
    return text


def _origin(text: str) -> str:
    if text != "null" and _ORIGIN.match(text) is None:
        raise wrong(f"{shown(text)} is not an origin such as https://chat.example.org:8443")
    return text.lower()


UrlPaths = Annotated[
    list[Annotated[str, AfterValidator(_url_path), TypeName("URL path")]],
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
        default=[*LOOPBACK_ADDRESSES],
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
        description="origins of web pages that may send requests from a browser, without a key on this machine, and "
        'read the answers, such as "https://chat.example.org"',
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
        addresses = tuple(text for text in self.listen if is_address(text))
        found = Configuration(
            port=self.port,
            addresses=addresses,
            interfaces=tuple(text for text in self.listen if text not in addresses),
            tls=self.tls_certificate is not None,
            certificate=self.tls_certificate or "",
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
