"""Every setting of the box, declared once: type, bounds, default and description.

`appliance.settings.loader` makes models of pydantic from these tables, which read the file and the variables; a daemon
decodes them from what a child process prints (`appliance.settings.snapshot`). The reference of the settings and the JSON
Schema of ``appliance config show`` follow from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from appliance.model import paths
from appliance.model.gateway import LOOPBACK_ADDRESSES
from appliance.model.names import SUPERVISOR_USER
from appliance.model.value_types import (
    AbsolutePath,
    Check,
    Deadline,
    Doc,
    Duration,
    Length,
    Port,
    Range,
    Size,
    User,
    WrongValueError,
)
from appliance.model.words import Mark
from appliance.settings.values import (
    Addresses,
    ForeignUnits,
    HostNames,
    Location,
    MemorySize,
    Origins,
    Places,
    TimeSpan,
    TimeZone,
    Url,
    UrlOrEmpty,
    UrlPaths,
    WatchedUnit,
    WatchName,
)

ENVIRONMENT_PREFIX: Final = "APPLIANCE_"
FILE_VARIABLE: Final = "APPLIANCE_SETTINGS"
"""Variable with the path of another file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """``[gateway]``: address and limits of the gateway. `appliance apply` puts changes in force."""

    port: Annotated[Port, Doc("port of the gateway; no profile may use it")] = 8010
    listen: Annotated[
        Places,
        Doc(
            "addresses to listen on, and names of network interfaces, which may appear "
            "later; other machines need keys"
        ),
    ] = LOOPBACK_ADDRESSES
    tls_certificate: Annotated[
        AbsolutePath | None,
        Doc("PEM file with the whole chain; the gateway then speaks TLS with other machines"),
    ] = None
    tls_key: Annotated[
        AbsolutePath | None, Doc("PEM file with its private key, readable for root alone")
    ] = None
    require_keys: Annotated[
        Literal["beyond-loopback", "always"],
        Doc("clients that need a key: those on other machines, or all"),
    ] = "beyond-loopback"
    allow_paths: Annotated[
        UrlPaths,
        Doc('engines\' administrative paths that clients may use all the same, such as "/metrics"'),
    ] = ()
    names: Annotated[
        HostNames,
        Doc(
            "further host names of this machine, by which its programs may send requests "
            "without a key, such as behind a reverse proxy"
        ),
    ] = ()
    origins: Annotated[
        Origins,
        Doc(
            "origins of web pages that may send requests from a browser, without a key on "
            'this machine, and read the answers, such as "https://chat.example.org"'
        ),
    ] = ()
    drain: Annotated[
        Deadline,
        Doc("time for requests in flight when a reload or an upgrade hands over to a new process"),
    ] = 600.0
    stop: Annotated[
        Duration,
        Range(most=300),
        Doc(
            "time for requests in flight when the gateway is stopped or restarted; a "
            "request that is cut gets an error"
        ),
    ] = 10.0
    max_wait: Annotated[Deadline, Doc("time that a request waits for a switch or a start")] = 300.0
    min_residency: Annotated[
        Duration, Doc("time that a model stays at least after a switch on request")
    ] = 60.0
    max_queue: Annotated[
        int,
        Range(least=0, most=65_536),
        Doc("requests that may wait at once; more get an error with Retry-After"),
    ] = 256
    max_connections: Annotated[
        int, Range(least=8, most=16_384), Doc("connections of clients at once")
    ] = 1024
    max_body: Annotated[MemorySize, Doc("size of a request's body, such as one with pictures")] = (
        64 << 20
    )
    max_buffered: Annotated[
        MemorySize, Doc("size of all bodies together that are being read or wait")
    ] = 160 << 20
    idle: Annotated[Deadline, Doc("time until a connection without a request is closed")] = 75.0

    def __post_init__(self) -> None:
        """Refuse keys that do not go together. Raises `WrongValueError`."""
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise WrongValueError("needs both tls_certificate and tls_key, or neither")
        if self.max_buffered < self.max_body:
            raise WrongValueError("has a max_buffered that is smaller than its max_body")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """``[memory]``: memory that the gate keeps free, and how often memory is sampled."""

    margin: Annotated[
        Size | None,
        Doc(
            "memory to keep free on each claimed GPU beyond the declared need, such as "
            '"512MiB"; unset: the gate\'s own margin'
        ),
    ] = None
    sample_every_s: Annotated[
        Duration,
        Range(least=1, most=60),
        Doc(
            "time between two samples of the memory of each process, while a backend runs; "
            "a list of the processes on a GPU holds a lock in the driver for some "
            "milliseconds"
        ),
    ] = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """``[health]``: measurements of the models that serve, by the health agent."""

    enabled: Annotated[
        bool, Doc("whether models are measured; false: the health agent asks them nothing")
    ] = True
    probe_every: Annotated[
        Duration,
        Range(least=60, most=86_400),
        Doc("time between two probes of a model's speed, while nobody else uses it"),
    ] = 900.0
    silent_after: Annotated[
        Duration,
        Range(least=600, most=7 * 86_400),
        Doc("serving time without a valid probe after which that is reported"),
    ] = 6 * 3600.0
    canary_every: Annotated[
        Duration,
        Range(least=300, most=86_400),
        Doc("time between two checks that a model's answers are well-formed"),
    ] = 3600.0
    state_dir: Annotated[Location, Doc("directory of the health agent's measurements")] = Path(
        paths.HEALTH_STATE_DIR
    )
    trial_speed: Annotated[
        float,
        Range(least=1, most=10_000),
        Doc(
            "factor by which all times of the health agent's schedules are shorter, for "
            "trials and tests"
        ),
    ] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """``[alerts]``: when people are told what is wrong."""

    enabled: Annotated[
        bool, Doc("whether targets are told; false: alerts are kept and shown, and nobody is told")
    ] = True
    time_zone: Annotated[
        TimeZone,
        Doc('zone of quiet hours and planned windows, such as "Europe/Rome"; empty: the box\'s'),
    ] = ""
    quiet_hours: Annotated[
        TimeSpan,
        Doc(
            'span of local time, such as "22:00-07:00", in which warnings wait for one '
            "digest at its end; critical alerts are told at once; empty: none"
        ),
    ] = ""
    box_silent_after: Annotated[
        Duration,
        Range(least=120, most=3600),
        Doc(
            "time after which a target that keeps scheduled messages tells that the box is "
            "silent; a planned shutdown extends it"
        ),
    ] = 300.0
    reboot_takes: Annotated[
        Duration,
        Range(least=60, most=7200),
        Doc("time by which a planned shutdown extends `box_silent_after`"),
    ] = 900.0
    button_url: Annotated[
        UrlOrEmpty,
        Doc(
            "address of this box that the phone reaches, for the buttons of messages; "
            "empty: messages have none"
        ),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """``[web]``: addresses, names and limits of the status API."""

    enabled: Annotated[
        bool, Doc("whether API, metrics and page answer; false: every request is refused")
    ] = True
    listen: Annotated[
        Addresses,
        Doc(
            "addresses to listen on, in force after `appliance apply`; other machines need "
            "an operator's token for whatever they ask"
        ),
    ] = LOOPBACK_ADDRESSES
    names: Annotated[
        HostNames,
        Doc(
            "further host names of this machine by which browsers and programs may ask, "
            "such as that of a VPN; others are refused"
        ),
    ] = ()
    idle: Annotated[
        Duration,
        Range(least=10, most=86_400),
        Doc("time without a client after which the process leaves"),
    ] = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """``[[watch]]``: a service that is watched besides the models, on this box or another."""

    name: Annotated[WatchName, Doc("name of the entry, which no profile has")]
    url: Annotated[
        Url | None, Doc("address that answers with a status of 200 to 299; this or `unit`")
    ] = None
    unit: Annotated[WatchedUnit | None, Doc("unit of this box that is active; this or `url`")] = (
        None
    )
    mark: Annotated[
        Mark, Doc("mark at first; `appliance mark` changes it, and the file no longer does")
    ] = Mark.LIVE
    every: Annotated[Duration, Range(least=10, most=3600), Doc("time between two looks")] = 30.0

    def __post_init__(self) -> None:
        """Refuse an entry of no kind or of both. Raises `WrongValueError`."""
        if (self.url is None) == (self.unit is None):
            raise WrongValueError("a watch has either a url or a unit")


def _different_names(watches: Sequence[WatchSettings]) -> Sequence[WatchSettings]:
    if len({watch.name for watch in watches}) != len(watches):
        raise WrongValueError("names two entries alike")
    return watches


class _Beside:
    """Socket beside the control socket, with the name that it has by default."""

    def __init__(self, default: str) -> None:
        self._name = default.rpartition("/")[2]

    def __get__(self, settings: "Settings", _: type["Settings"]) -> Path:
        return settings.control_socket.with_name(self._name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of the box, checked. Durations are seconds, sizes bytes."""

    prefix: Annotated[
        Location, Doc("directory of the installed release; only root may write in it")
    ] = Path(paths.PREFIX)
    profiles_dir: Annotated[Location, Doc("directory of profiles, `NAME.toml`")] = Path(
        paths.PROFILES_DIR
    )
    state_dir: Annotated[
        Location, Doc("directory of the supervisor's state: committed names, hold, history")
    ] = Path(paths.STATE_DIR)
    applied_dir: Annotated[
        Location, Doc("directory of root's record of what `appliance apply` installed")
    ] = Path(paths.APPLIED_DIR)
    unit_dir: Annotated[Location, Doc("directory of generated units")] = Path(paths.UNIT_DIR)
    polkit_rule: Annotated[
        Location, Doc("file of the generated polkit rule with the exact names of the units")
    ] = Path(paths.POLKIT_RULE)
    control_socket: Annotated[
        Location,
        Doc(
            "socket between the CLI and the supervisor; appliance-supervisor.socket has the"
            " same path"
        ),
    ] = Path(paths.CONTROL_SOCKET)
    runtime_dir: Annotated[
        Location,
        Doc("directory of the supervisor for what must survive its restart, but no reboot"),
    ] = Path(paths.SUPERVISOR_RUNTIME_DIR)
    lease_dir: Annotated[Location, Doc("directory of the locks by which claims are held")] = Path(
        paths.LEASE_DIR
    )
    gate_dir: Annotated[Location, Doc("directory of the gate's verdicts")] = Path(paths.GATE_DIR)
    hf_home: Annotated[
        Location, Doc("local Hugging Face cache in which `hf:owner/name` is looked up")
    ] = Path(paths.HF_HOME)
    daemon_user: Annotated[User, Doc("user that the supervisor runs as")] = SUPERVISOR_USER
    backend_user: Annotated[
        User | None,
        Doc("user that engines run as, unless a profile names one; unset: each has its own user"),
    ] = None
    foreign_units: Annotated[
        ForeignUnits,
        Doc("units of others that must never run beside a backend, such as an old `vllm.service`"),
    ] = ()
    status_port: Annotated[
        Port, Doc("port of the status API and its page, which no profile may use")
    ] = 8011
    look_every_s: Annotated[
        Duration,
        Range(least=0.1, most=10),
        Doc(
            "longest pause of the supervisor between two looks at the box; each look also "
            "feeds the watchdog of the supervisor's unit"
        ),
    ] = 2.0
    keep_operations: Annotated[
        int,
        Range(least=10, most=1_000_000),
        Doc("finished operations kept in the history; older ones go"),
    ] = 1000
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Doc("level of the supervisor's log in the journal"),
    ] = "info"
    gateway: Annotated[GatewaySettings, Doc("address and limits of the gateway")] = (
        GatewaySettings()
    )
    memory: Annotated[
        MemorySettings, Doc("memory that the gate keeps free, and how often memory is sampled")
    ] = MemorySettings()
    health: Annotated[
        HealthSettings,
        Doc(
            "measurements of the models that serve, by the health agent; in force after "
            "`systemctl restart appliance-health`"
        ),
    ] = HealthSettings()
    alerts: Annotated[
        AlertSettings, Doc("when people are told what is wrong; in force as `[health]`")
    ] = AlertSettings()
    web: Annotated[
        WebSettings,
        Doc(
            "addresses, host names and limits of API, metrics and page; in force after "
            "`systemctl stop appliance-web`"
        ),
    ] = WebSettings()
    watch: Annotated[
        tuple[WatchSettings, ...],
        Length(most=64),
        Check(_different_names),
        Doc(
            "services that are watched besides the models; in force after `systemctl "
            "restart appliance-supervisor appliance-health`"
        ),
    ] = ()

    gateway_socket = _Beside(paths.GATEWAY_SOCKET)
    """Socket of the gateway for the supervisor."""
    request_socket = _Beside(paths.REQUEST_SOCKET)
    """Supervisor's socket for the gateway."""
    token_socket = _Beside(paths.TOKEN_SOCKET)
    """Supervisor's socket for requests by operators' tokens."""
    status_socket = _Beside(paths.STATUS_SOCKET)
    """Supervisor's socket for processes that only look at the box."""
    jobs_socket = _Beside(paths.JOBS_SOCKET)
    """Socket of the program that queues jobs."""
    lane_socket = _Beside(paths.LANE_SOCKET)
    """Gateway's socket for the health agent."""
    prompt_socket = _Beside(paths.PROMPT_SOCKET)
    """Gateway's socket for the web process."""
    health_socket = _Beside(paths.HEALTH_SOCKET)
    """Socket of the health agent for operators."""
    view_socket = _Beside(paths.VIEW_SOCKET)
    """Socket of the health agent for processes that only look."""
    notify_socket = _Beside(paths.NOTIFY_SOCKET)
    """Socket of the notifier for the health agent."""
    audit_socket = _Beside(paths.AUDIT_SOCKET)
    """Socket of the auditor for the health agent."""
    check_socket = _Beside(paths.CHECK_SOCKET)
    """Socket of the checker for the health agent."""

    @property
    def target_names(self) -> Path:
        """Return the file with the names of the targets."""
        return self.applied_dir / paths.TARGET_NAMES

    @property
    def needs_dir(self) -> Path:
        """Return the directory of observed peaks."""
        return self.state_dir / paths.NEEDS

    @property
    def reserved_ports(self) -> Mapping[int, str]:
        """Return ports that no profile may use, with a phrase for their owner."""
        return {self.gateway.port: "the gateway", self.status_port: "the status API"}
