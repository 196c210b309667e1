"""What the gateway, the supervisor and the planning of routes tell each other about."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from appliance.domain.paths import REQUEST_SOCKET, STATE_DIR
from appliance.domain.profile import Endpoint


class Api(StrEnum):
    """Which API a request speaks: how an error has to look, as a body and in a stream."""

    CHAT = "chat"
    """OpenAI chat completions, and what looks like them."""
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"
    """``/v1/messages``."""
    OTHER = "other"
    """Errors in OpenAI's form; nothing is known of its streams."""


class Standing(StrEnum):
    """How a profile stands, as far as a client is concerned."""

    SERVING = "serving"
    STARTING = "coming"
    """It loads, or systemd starts it again after a crash: worth waiting for. The value is that of the
    first release on the gateway's socket."""
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """A profile as the gateway sees it."""

    name: str
    served: tuple[str, ...]
    """Names and patterns that clients may ask for, its own name apart."""
    engine_name: str
    """The model's name that the engine itself knows."""
    endpoint: Endpoint
    exclusive: bool = True
    """It owns a device alone; others only help out, and are never the default."""
    set_parameters: Mapping[str, object] = field(default_factory=dict)
    """Request parameters that are set whatever the client says; dots reach into objects."""
    strip_parameters: tuple[str, ...] = ()
    """Request parameters that are taken out."""
    on_request: bool = False
    """A request for it may switch to it."""
    engine_key: str | None = field(default=None, repr=False)
    """What the engine wants as a bearer token; never shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What serves now, as the supervisor last told it."""

    standings: Mapping[str, Standing] = field(default_factory=dict)
    """By profile; absent: down."""
    held: frozenset[str] = frozenset()
    """Profiles whose new requests wait: an operation touches them."""
    target: tuple[str, ...] = ()
    """What the running operation is to bring up."""
    committed: tuple[str, ...] = ()
    paused: bool = False
    """People hold the box, or run a command in place of models: nobody switches by asking."""

    def standing(self, name: str) -> Standing:
        """How a profile stands."""
        return self.standings.get(name, Standing.DOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An inference key, without its secret."""

    name: str
    may_switch: bool = False
    profiles: tuple[str, ...] | None = None
    """What it may use; None: everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request is not served, for the client."""

    status: int
    """HTTP's."""
    code: str
    """A word for programs, such as ``model_not_active``."""
    message: str
    param: str | None = None
    """Which request parameter is to blame."""
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client, and all together, may take. Times are in seconds."""

    head_bytes: int = 32 << 10
    headers: int = 100
    body_bytes: int = 64 << 20
    buffered_bytes: int = 160 << 20
    """Of all request bodies that wait or are being read, together: the process may take 300 MiB."""
    connections: int = 1024
    head_s: float = 15.0
    """For a request's head, once its first byte is there."""
    body_s: float = 20.0
    """In each such time a body makes progress at `body_rate` at least."""
    body_rate: int = 4 << 10
    """Bytes a second. The slowest of mobile phones has more."""
    whole_body_s: float = 900.0
    """For a whole body: 64 MiB at 75 KiB/s."""
    idle_s: float = 75.0
    """Between two requests."""
    stuck_s: float = 120.0
    """While a client reads nothing of what is ready for it."""
    connect_s: float = 5.0
    """To an engine."""
    queue: int = 256
    """Requests that may be held."""
    wait_s: float = 300.0
    """For a held request, at most."""
    quiet_s: float = 5.0
    """Until a held stream is given its head and a comment."""
    comment_every_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What holds for the gateway of a box, as `appliance apply` compiled it from the settings."""

    port: int = 8010
    addresses: tuple[str, ...] = ("127.0.0.1",)
    """Where it listens: IPv4 and IPv6 addresses, never a wildcard."""
    interfaces: tuple[str, ...] = ()
    """And on every address of these network interfaces, whenever they have one."""
    tls: bool = False
    """Beyond loopback it speaks TLS, with the certificate among its credentials."""
    keys_always: bool = False
    """Also on loopback nobody is served without a key."""
    limits: Limits = field(default_factory=Limits)
    drain_s: float = 600.0
    """For requests in flight when another process takes over."""
    stop_s: float = 10.0
    """For requests in flight when it is stopped or restarted."""
    min_residency_s: float = 60.0
    """A profile that was switched to on request stays at least so long."""
    allow_paths: tuple[str, ...] = ()
    """Engines' administrative paths that clients may use all the same."""
    names: tuple[str, ...] = ()
    """Host names by which it may be asked without a key, beside this machine's own."""
    origins: tuple[str, ...] = ()
    """Web pages that may ask without a key, beside those of this machine."""
    state_dir: str = STATE_DIR
    """The supervisor's, where the keys are."""
    request_socket: str = REQUEST_SOCKET
    """Where the supervisor is asked for a switch."""
    log_level: str = "info"

    def beyond_loopback(self) -> tuple[str, ...]:
        """What of `addresses` and `interfaces` other machines can reach."""
        return (*(a for a in self.addresses if not is_loopback(a)), *self.interfaces)

    def on_loopback(self) -> "Configuration":
        """This, without what other machines can reach."""
        own = tuple(a for a in self.addresses if is_loopback(a))
        return replace(self, addresses=own, interfaces=())


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an IP address."""
    return address.startswith("127.") or address == "::1"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """What an engine says about itself. None: it does not say."""

    running: int | None = None
    """Requests that it works on."""
    queued: int | None = None
    """Requests that wait inside it."""
    kv_cache: float | None = None
    """The share of its KV cache that is in use, 0 to 1."""
