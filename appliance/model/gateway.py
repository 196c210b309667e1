"""Types that the gateway, the supervisor and the planning of routes share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from appliance.model.paths import REQUEST_SOCKET, STATE_DIR
from appliance.model.profile import Endpoint, Handling
from appliance.model.record import ProfileName

LOOPBACK_ADDRESSES: Final = ("127.0.0.1", "::1")
"""Addresses to listen on where the settings name none: many clients try ``::1`` first for ``localhost``,
and a program of another user could have it otherwise."""


class Api(StrEnum):
    """API that a request speaks, which decides the form of errors, in bodies and in streams."""

    CHAT = "chat"
    """OpenAI chat completions, and paths of engines with the same form."""
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"
    """Anthropic's messages API: ``/v1/messages``."""
    OLLAMA = "ollama"
    """Ollama's own API, which is refused: an error is an object with one text."""
    OTHER = "other"
    """Any other API: errors in OpenAI's form; the form of streams is not known."""


class Standing(StrEnum):
    """Standing of a profile, as far as it matters to clients."""

    SERVING = "serving"
    STARTING = "coming"
    """The profile loads, or systemd starts it again after a crash, so that waiting is worthwhile.
    The value is that of the first release on the gateway's socket."""
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Facts about a model that clients are told; they do not depend on what serves."""

    created_unix_s: int = 0
    """Unix seconds of the model's file, or of the profile's."""
    context_tokens: int | None = None
    """Tokens that one request may use; None: not known."""
    capabilities: Mapping[str, bool] = field(default_factory=dict)
    """Capabilities by name; one that is absent is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """Profile as the gateway routes to it."""

    name: str
    served: tuple[str, ...]
    """Names and patterns that clients may ask for, besides `name`."""
    engine_name: str | None
    """Name of the model in the engine, for every name that `engine_names` has not; None: it stays."""
    endpoint: Endpoint
    engine_names: Mapping[str, str] = field(default_factory=dict)
    """Names of models in the engine by the names that clients ask for."""
    adapters: Mapping[str, str] = field(default_factory=dict)
    """Models by the names of their adapters, which are among `served`."""
    exclusive: bool = True
    """Whether the profile owns a device alone; a profile without this is the default only when no
    other exists."""
    handling: Handling = field(default_factory=Handling)
    engine_key: str | None = field(default=None, repr=False)
    """Bearer token for the engine, never shown; None: the engine wants none."""
    card: ModelCard = field(default_factory=ModelCard)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State of the box for the gateway, as the supervisor last sent it."""

    standings: Mapping[ProfileName, Standing] = field(default_factory=dict)
    """Standings by profile; a profile that is absent is down."""
    held: frozenset[ProfileName] = frozenset()
    """Profiles whose new requests wait, because an operation stops or starts them."""
    target: tuple[ProfileName, ...] = ()
    """Profiles that the running operation brings up."""
    committed: tuple[ProfileName, ...] = ()
    paused: bool = False
    """Whether an operator holds the box or runs a command in place of models: requests cause no
    switch."""
    lent: bool = False
    """Whether it is a command that pauses the box, not a hold."""
    failed: frozenset[ProfileName] = frozenset()
    """Profiles that are down because their last start or run failed."""
    crashed: frozenset[ProfileName] = frozenset()
    """Profiles whose engine has ended by itself, and which systemd is about to start again."""
    retired: frozenset[ProfileName] = frozenset()
    """Profiles that are marked retired: no switch to them is accepted."""

    def standing(self, name: str) -> Standing:
        return self.standings.get(name, Standing.DOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An inference key, without its secret."""

    name: str
    may_switch: bool = False
    profiles: tuple[str, ...] | None = None
    """Profiles that the key may use; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Refusal of a request, for the client."""

    status: int
    """HTTP status code."""
    code: str
    """Identifier for programs, such as ``model_not_active``."""
    message: str
    param: str | None = None
    """Request parameter that is to blame; None: none."""
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one client, and of all together. Times are in seconds."""

    head_bytes: int = 32 << 10
    headers: int = 100
    body_bytes: int = 64 << 20
    buffered_bytes: int = 160 << 20
    """Bytes of all request bodies together that wait or are being read: the process may take 300
    MiB."""
    connections: int = 1024
    head_s: float = 15.0
    """Time for a request head, from its first byte."""
    body_s: float = 20.0
    """Period in which a body has to come at `body_rate` at least."""
    body_rate: int = 4 << 10
    """Minimum rate of a body in bytes a second. The slowest mobile connections have more."""
    whole_body_s: float = 900.0
    """Time for a whole body: 64 MiB at 75 KiB/s."""
    idle_s: float = 75.0
    """Time that a connection may stay idle between two requests."""
    stuck_s: float = 120.0
    """Time for which a client may read nothing of its response."""
    connect_s: float = 5.0
    """Time to connect to an engine."""
    queue: int = 256
    """Requests that may be held."""
    wait_s: float = 300.0
    """Time that a request is held, at most."""
    quiet_s: float = 5.0
    """Time until the client of a held stream is sent a response head and a sign of life."""
    comment_every_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Settings of the gateway, as `appliance apply` compiled them."""

    port: int = 8010
    addresses: tuple[str, ...] = LOOPBACK_ADDRESSES
    """IPv4 and IPv6 addresses to listen on, never a wildcard."""
    interfaces: tuple[str, ...] = ()
    """Network interfaces, on each address of which the gateway listens whenever it exists."""
    tls: bool = False
    """Whether addresses beyond loopback use TLS, with the certificate among the credentials."""
    certificate: str = ""
    """Path that systemd reads the certificate from when the gateway starts; empty: no TLS."""
    keys_always: bool = False
    """Whether a key is needed on loopback, too."""
    limits: Limits = field(default_factory=Limits)
    drain_s: float = 600.0
    """Time for requests in flight when another process takes over."""
    stop_s: float = 10.0
    """Time for requests in flight when the gateway is stopped or restarted."""
    min_residency_s: float = 60.0
    """Time for which a profile that was switched to on request serves at least."""
    allow_paths: tuple[str, ...] = ()
    """Admin paths of engines that clients may use all the same."""
    names: tuple[str, ...] = ()
    """Host names that need no key, beside those of this machine."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that need no key, beside those of this machine."""
    state_dir: str = STATE_DIR
    """State directory of the supervisor, where the keys are."""
    request_socket: str = REQUEST_SOCKET
    """Socket on which the supervisor is asked for a switch."""
    log_level: str = "info"

    def beyond_loopback(self) -> tuple[str, ...]:
        """Return the `addresses` and `interfaces` that other machines can reach."""
        return (*(a for a in self.addresses if not is_loopback(a)), *self.interfaces)

    def on_loopback(self) -> "Configuration":
        """Return these settings without the addresses that other machines can reach."""
        own = tuple(a for a in self.addresses if is_loopback(a))
        return replace(self, addresses=own, interfaces=())


def is_loopback(address: str) -> bool:
    """Tell whether only this machine can reach an IP address."""
    return address.startswith("127.") or address == "::1"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetrics:
    """Metrics that an engine publishes, in Prometheus's text format."""

    text: str = field(repr=False)
    truncated: bool = False
    """Whether the page was longer than is read; `text` then ends with its last whole line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """Load that an engine reports; a figure that is None is not reported."""

    running: int | None = None
    """Requests that the engine works on."""
    queued: int | None = None
    """Requests that wait inside the engine."""
    kv_cache: float | None = None
    """Share of the KV cache that is in use, 0 to 1."""
    prefix_queries: int | None = None
    """Prompt tokens that were looked up in the prefix cache since the engine's start."""
    prefix_hits: int | None = None
    """Prompt tokens that it held, of those."""
