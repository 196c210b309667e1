"""Settings of the whole box: /etc/appliance/appliance.toml, then APPLIANCE_* variables.

A variable wins over the file: ``APPLIANCE_LOG_LEVEL=debug``; a table's key is reached with two
underscores: ``APPLIANCE_MEMORY__MARGIN=1GiB``. ``APPLIANCE_SETTINGS`` names another file.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as SourceError

from appliance.model import paths
from appliance.model.errors import SettingsError
from appliance.model.names import SUPERVISOR_USER
from appliance.model.value_types import TypeName, shown
from appliance.settings.alerts import AlertSettings, WatchSettings
from appliance.settings.gateway import GatewaySettings
from appliance.settings.network import split_list
from appliance.settings.web import WebSettings
from appliance.system.toml.file import (
    Document,
    Fault,
    FaultyFileError,
    fault_lines,
    parse_document,
    read_document,
)
from appliance.system.toml.tables import (
    Duration,
    Port,
    Size,
    User,
    model_faults,
    table_model,
    wrong,
)

ENVIRONMENT_PREFIX: Final = "APPLIANCE_"
FILE_VARIABLE: Final = "APPLIANCE_SETTINGS"
_NESTED: Final = "__"
_CLOSE: Final = 0.75
"""Similarity, as in difflib, from which a variable is taken for a misspelt setting."""


def _unit_name(text: str) -> str:
    if not text.endswith((".service", ".target", ".scope", ".socket")) or "/" in text:
        raise wrong(f'"{text}" is not the name of a unit, such as vllm.service')
    if text.startswith("appliance-"):
        raise wrong(f'"{text}" is one of the appliance\'s own units')
    return text


def _location(value: Any) -> Path:
    text = str(value)
    if not isinstance(value, str | Path) or not text.startswith("/") or ".." in Path(text).parts:
        raise wrong(f"{shown(text)} is not an absolute path without ..")
    if not text.isprintable():
        raise wrong("contains a control character")
    return Path(text)


Location = Annotated[Path, PlainValidator(_location), TypeName("path")]
UnitName = Annotated[str, AfterValidator(_unit_name), TypeName("unit")]
Units = Annotated[list[UnitName], NoDecode, BeforeValidator(split_list)]


_MOST_WATCHES: Final = 64


def _different_names(watches: list[WatchSettings]) -> list[WatchSettings]:
    if len({watch.name for watch in watches}) != len(watches):
        raise wrong("names two entries alike")
    return watches


Watches = Annotated[
    list[WatchSettings], Field(max_length=_MOST_WATCHES), AfterValidator(_different_names)
]


class MemorySettings(BaseModel):
    """``[memory]``: memory that the gate keeps free, and how often memory is sampled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    margin: Size | None = Field(
        default=None,
        description="memory to keep free on each claimed GPU beyond the declared need, such as "
        '"512MiB"; unset: the gate\'s own margin',
    )
    sample_every_s: Annotated[Duration, Field(ge=1, le=60)] = Field(
        default=5.0,
        description="time between two samples of the memory of each process, while a backend runs; "
        "a list of the processes on a GPU holds a lock in the driver for some milliseconds",
    )


class HealthSettings(BaseModel):
    """``[health]``: measurements of the models that serve, by the health agent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(
        default=True,
        description="whether models are measured; false: the health agent asks them nothing",
    )
    probe_every: Annotated[Duration, Field(ge=60, le=86_400)] = Field(
        default=900.0,
        description="time between two probes of a model's speed, while nobody else uses it",
    )
    silent_after: Annotated[Duration, Field(ge=600, le=7 * 86_400)] = Field(
        default=6 * 3600.0,
        description="serving time without a valid probe after which that is reported",
    )
    canary_every: Annotated[Duration, Field(ge=300, le=86_400)] = Field(
        default=3600.0,
        description="time between two checks that a model's answers are well-formed",
    )
    state_dir: Location = Field(
        default=Path(paths.HEALTH_STATE_DIR),
        description="directory of the health agent's measurements",
    )
    trial_speed: Annotated[float, Field(ge=1, le=10_000, allow_inf_nan=False)] = Field(
        default=1.0,
        description="factor by which all times of the health agent's schedules are shorter, for "
        "trials and tests",
    )


class Settings(BaseSettings):
    """Every setting of the box, checked. Durations are seconds, sizes bytes."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter=_NESTED,
        extra="forbid",
        frozen=True,
        validate_default=True,
    )

    prefix: Location = Field(
        default=Path(paths.PREFIX),
        description="directory of the installed release; only root may write in it",
    )
    profiles_dir: Location = Field(
        default=Path(paths.PROFILES_DIR), description="directory of profiles, `NAME.toml`"
    )
    state_dir: Location = Field(
        default=Path(paths.STATE_DIR),
        description="directory of the supervisor's state: committed names, hold, history",
    )
    applied_dir: Location = Field(
        default=Path(paths.APPLIED_DIR),
        description="directory of root's record of what `appliance apply` installed",
    )
    unit_dir: Location = Field(
        default=Path(paths.UNIT_DIR), description="directory of generated units"
    )
    polkit_rule: Location = Field(
        default=Path(paths.POLKIT_RULE),
        description="file of the generated polkit rule with the exact names of the units",
    )
    control_socket: Location = Field(
        default=Path(paths.CONTROL_SOCKET),
        description="socket between the CLI and the supervisor; appliance-supervisor.socket has the same path",
    )
    runtime_dir: Location = Field(
        default=Path(paths.SUPERVISOR_RUNTIME_DIR),
        description="directory of the supervisor for what must survive its restart, but no reboot",
    )
    lease_dir: Location = Field(
        default=Path(paths.LEASE_DIR), description="directory of the locks by which claims are held"
    )
    gate_dir: Location = Field(
        default=Path(paths.GATE_DIR), description="directory of the gate's verdicts"
    )
    hf_home: Location = Field(
        default=Path(paths.HF_HOME),
        description="local Hugging Face cache in which `hf:owner/name` is looked up",
    )
    daemon_user: User = Field(
        default=SUPERVISOR_USER, description="user that the supervisor runs as"
    )
    backend_user: User | None = Field(
        default=None,
        description="user that engines run as, unless a profile names one; unset: each has its own user",
    )
    foreign_units: Units = Field(
        default=[],
        description="units of others that must never run beside a backend, such as an "
        "old `vllm.service`",
    )
    status_port: Port = Field(
        default=8011,
        description="port of the status API and its page, which no profile may use",
    )
    look_every_s: Annotated[Duration, Field(ge=0.1, le=10)] = Field(
        default=2.0,
        description="longest pause of the supervisor between two looks at the box; each look "
        "also feeds the watchdog of the supervisor's unit",
    )
    keep_operations: Annotated[int, Field(ge=10, le=1_000_000)] = Field(
        default=1000, description="finished operations kept in the history; older ones go"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="level of the supervisor's log in the journal"
    )
    gateway: GatewaySettings = Field(
        default=GatewaySettings(), description="address and limits of the gateway"
    )
    memory: MemorySettings = Field(
        default=MemorySettings(),
        description="memory that the gate keeps free, and how often memory is sampled",
    )
    health: HealthSettings = Field(
        default=HealthSettings(),
        description="measurements of the models that serve, by the health agent; in force after "
        "`systemctl restart appliance-health`",
    )
    alerts: AlertSettings = Field(
        default=AlertSettings(),
        description="when people are told what is wrong; in force as `[health]`",
    )
    web: WebSettings = Field(
        default=WebSettings(),
        description="addresses, host names and limits of API, metrics and page; in force after "
        "`systemctl stop appliance-web`",
    )
    watch: Watches = Field(
        default=[],
        description="services that are watched besides the models; in force after "
        "`systemctl restart appliance-supervisor appliance-health`",
    )

    @field_validator("gateway")
    @classmethod
    def _check_ports(cls, gateway: GatewaySettings, info: ValidationInfo) -> GatewaySettings:
        if gateway.port == info.data.get("status_port"):
            raise wrong("has the port of the status API too (status_port): they need two")
        return gateway

    @property
    def gateway_socket(self) -> Path:
        """Return the socket of the gateway for the supervisor."""
        return self._beside_control_socket(paths.GATEWAY_SOCKET)

    @property
    def request_socket(self) -> Path:
        """Return the supervisor's socket for the gateway."""
        return self._beside_control_socket(paths.REQUEST_SOCKET)

    @property
    def token_socket(self) -> Path:
        """Return the supervisor's socket for requests by operators' tokens."""
        return self._beside_control_socket(paths.TOKEN_SOCKET)

    @property
    def status_socket(self) -> Path:
        """Return the supervisor's socket for processes that only look at the box."""
        return self._beside_control_socket(paths.STATUS_SOCKET)

    @property
    def jobs_socket(self) -> Path:
        """Return the socket of the program that queues jobs."""
        return self._beside_control_socket(paths.JOBS_SOCKET)

    @property
    def lane_socket(self) -> Path:
        """Return the gateway's socket for the health agent."""
        return self._beside_control_socket(paths.LANE_SOCKET)

    @property
    def prompt_socket(self) -> Path:
        """Return the gateway's socket for the web process."""
        return self._beside_control_socket(paths.PROMPT_SOCKET)

    @property
    def health_socket(self) -> Path:
        """Return the socket of the health agent for operators."""
        return self._beside_control_socket(paths.HEALTH_SOCKET)

    @property
    def view_socket(self) -> Path:
        """Return the socket of the health agent for processes that only look."""
        return self._beside_control_socket(paths.VIEW_SOCKET)

    @property
    def notify_socket(self) -> Path:
        """Return the socket of the notifier for the health agent."""
        return self._beside_control_socket(paths.NOTIFY_SOCKET)

    @property
    def audit_socket(self) -> Path:
        """Return the socket of the auditor for the health agent."""
        return self._beside_control_socket(paths.AUDIT_SOCKET)

    @property
    def check_socket(self) -> Path:
        """Return the socket of the checker for the health agent."""
        return self._beside_control_socket(paths.CHECK_SOCKET)

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

    def _beside_control_socket(self, default: str) -> Path:
        return self.control_socket.with_name(PurePath(default).name)


def load_settings(path: Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """Load the settings of this box.

    Args:
        path: Of the file; None: ``APPLIANCE_SETTINGS``, else the default. A missing default file
            means defaults, a missing file that was asked for is an error.
        env: The environment; None: this process's.

    Raises:
        SettingsError: one line for everything that is wrong.
    """
    env = os.environ if env is None else env
    named = path or (Path(env[FILE_VARIABLE]) if env.get(FILE_VARIABLE) else None)
    file = named or Path(paths.SETTINGS_FILE)
    try:
        document = (
            parse_document(b"") if named is None and not file.exists() else read_document(file)
        )
    except FaultyFileError as error:
        raise SettingsError(fault_lines(str(file), error.faults)) from error
    strangers = dict(_unknown_variables(env))
    lines = list(strangers.values())
    try:
        loaded = _loader(env)(**document.table)
    except ValidationError as error:
        lines += _lines(error, file, document, env, strangers)
        raise SettingsError("\n".join(lines)) from error
    except SourceError as error:
        lines += [f"{ENVIRONMENT_PREFIX}*: {error}"]
        raise SettingsError("\n".join(lines)) from error
    if lines:
        raise SettingsError("\n".join(lines))
    return Settings.model_construct(**dict(loaded))


def _loader(env: Mapping[str, str]) -> type[Settings]:
    """Return a class of settings that reads `env` first, then its arguments."""

    class LoadedSettings(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the interface
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            variables = EnvSettingsSource(settings_cls)
            variables.env_vars = {name.lower(): value for name, value in env.items()}
            return variables, init_settings

    return LoadedSettings


def _lines(
    error: ValidationError,
    file: Path,
    document: Document,
    env: Mapping[str, str],
    reported: Collection[str],
) -> Iterator[str]:
    """Yield faults of variables, then those of the file in the order of its lines."""
    given = {name.upper(): value for name, value in env.items()}
    in_file = []
    for fault in model_faults(error, Settings, document.table):
        keys = [str(part) for part in fault.where if isinstance(part, str)]
        variable = ENVIRONMENT_PREFIX + _NESTED.join(keys).upper()
        if variable not in given:
            in_file.append(Fault(line=document.line(fault.where), text=fault.text))
        elif variable not in reported:
            # The sentence may quote the file's value, which the variable has replaced.
            yield f"{variable}={shown(given[variable])}: {fault.text.partition(', not ')[0]}"
    if in_file:
        yield fault_lines(str(file), in_file)


def _unknown_variables(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield faults of unknown variables whose names resemble a setting.

    Others with our prefix may belong to a script that runs the appliance, or to its tests.
    """
    known = [v.removeprefix(ENVIRONMENT_PREFIX) for v in (*_variables(Settings), FILE_VARIABLE)]
    for name in sorted(env):
        word = name.removeprefix(ENVIRONMENT_PREFIX)
        if word == name or word in known:
            continue
        if close := get_close_matches(word[:128], known, n=1, cutoff=_CLOSE):
            yield name, f'{name}: no such setting; did you mean "{ENVIRONMENT_PREFIX}{close[0]}"?'


def _variables(model: type[BaseModel], prefix: str = ENVIRONMENT_PREFIX) -> Iterator[str]:
    """Yield the variable of every setting."""
    for name, field in model.model_fields.items():
        yield prefix + name.upper()  # a table as a whole, in JSON
        if inner := table_model(field.annotation):
            yield from _variables(inner, prefix + name.upper() + _NESTED)


def as_table(settings: Settings) -> Mapping[str, Any]:
    """Return the settings as plain values, for `appliance config show`."""
    return settings.model_dump(mode="json")
