"""Overrides in [unit] of a profile: keys that may be set, the form of their values, and where other settings belong.

A profile may set the keys of `ALLOWED`, each to a value of its form. Everything else could undo a
promise (one owner of a device, loopback only, never root, a stop that empties the control group),
so it is refused, with the way to do it.

A form accepts only text that means the same to every systemd, whatever the key: no quotes except
in a command, no ``%`` specifiers except ``%n`` in an instance name, no variables, never empty (an
empty assignment resets a list, ours included).

Sources: systemd.syntax(7), systemd.unit(5), systemd.resource-control(5), systemd.exec(5), and
``config_parse_exec`` in load-fragment.c for commands.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from appliance.model.profile_values import Override
from appliance.switch.units.text import Section, words_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Form of a key's values."""

    text: str
    """Description of the form, to follow "is not"."""
    accepts: Callable[[str], bool]


def _pattern(text: str, pattern: str) -> Form:
    compiled = re.compile(pattern, re.ASCII)
    return Form(text=text, accepts=lambda value: compiled.fullmatch(value) is not None)


def _list(text: str, accepts: Callable[[str], object]) -> Form:
    """Return the form of a list of words, one blank between two."""
    return Form(text=text, accepts=lambda value: all(map(accepts, value.split(" "))))


def one_of(*values: str) -> Form:
    """Return the form of exactly one of `values`."""
    return Form(text="one of " + ", ".join(values), accepts=frozenset(values).__contains__)


def whole_number(low: int, high: int) -> Form:
    """Return the form of a whole number from `low` to `high`."""

    def accepts(value: str) -> bool:
        return _INTEGER.fullmatch(value) is not None and low <= int(value) <= high

    return Form(text=f"a whole number from {low} to {high}", accepts=accepts)


_INTEGER: Final = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_SIZE: Final = r"(?:[0-9]{1,15}[KMGT]?|infinity)"
_COUNT: Final = r"(?:[0-9]{1,12}|infinity)"
_SHARE: Final = r"(?:100|[0-9]{1,2}(?:\.[0-9]{1,2})?)%"
_RANGE: Final = r"[0-9]{1,4}(?:-[0-9]{1,4})?"

MEMORY: Final = _pattern('a size such as "64G", "80%" or infinity', rf"{_SIZE}|{_SHARE}")
CPU_SHARE: Final = _pattern('a share of one CPU, such as "150%"', r"[1-9][0-9]{0,5}%")
TASKS: Final = _pattern('a number, "50%" or infinity', rf"{_COUNT}|{_SHARE}")
COUNT_LIMIT: Final = _pattern('a limit such as "65536" or infinity', rf"{_COUNT}(?::{_COUNT})?")
SIZE_LIMIT: Final = _pattern('a limit such as "16G" or infinity', rf"{_SIZE}(?::{_SIZE})?")
DURATION: Final = _pattern(
    'a duration such as "500ms", "10s" or "5min"', r"[0-9]{1,9}(?:ms|s|min|h)?"
)
INDEXES: Final = _pattern('a list such as "0-7" or "0,2,4-9"', rf"{_RANGE}(?:[ ,]{_RANGE})*")
WEIGHT: Final = whole_number(1, 10_000)
DOCUMENTATION: Final = _list(
    "a list of addresses such as man:llama-server(1)",
    re.compile(r"(?:https?|file|info|man):[\w./:()~+,=&?#@-]+", re.ASCII).fullmatch,
)

# --- names of units ----------------------------------------------------------------------

_UNIT: Final = re.compile(
    r"[A-Za-z0-9][\w:.\\-]{0,199}(?:@[\w:.\\-]{0,50})?"
    r"\.(?:service|socket|mount|automount|device|path|timer)",
    re.ASCII,
)
_TARGETS: Final = frozenset(
    f"{name}.target"
    for name in (
        *("basic", "local-fs", "network", "network-online", "network-pre", "nss-lookup"),
        *("nss-user-lookup", "remote-fs", "sysinit", "time-set", "time-sync"),
    )
)
"""Targets that a backend may start after or pull in. Others stop or isolate the machine."""
_SYSTEMD: Final = frozenset(
    f"systemd-{name}.service"
    for name in ("modules-load", "networkd-wait-online", "time-wait-sync", "udev-settle")
)
"""Services of systemd that only wait or load; others stop the machine or put it to sleep."""
_ROOT_SHELLS: Final = frozenset(
    f"{name}.service" for name in ("debug-shell", "emergency", "rescue")
)


def is_foreign_unit(name: str) -> bool:
    """Tell whether `name` is a unit that is not the appliance's and does not stop the machine."""
    if name in _TARGETS | _SYSTEMD:
        return True
    if name in _ROOT_SHELLS:
        return False
    ours_or_systemds = name.startswith(("appliance-", "systemd-"))
    return not ours_or_systemds and _UNIT.fullmatch(name) is not None


UNITS: Final = _list(
    "a list of units that are not the appliance's, such as network-online.target", is_foreign_unit
)
REPORTERS: Final = _list(
    "a list of units that are not the appliance's, such as mail@%n.service",
    lambda name: is_foreign_unit(name.replace("@%n.", "@n.")),
)

# --- paths and devices -------------------------------------------------------------------

_PATH: Final = re.compile(r"-?((?:/[\w+,@=~.-]+)+)/?")
_NOT_DATA: Final = (
    *("/bin/", "/boot/", "/dev/", "/efi/", "/etc/", "/lib/", "/lib32/", "/lib64/", "/libx32/"),
    *("/proc/", "/root/", "/run/", "/sbin/", "/sys/", "/usr/", "/var/log/", "/var/run/"),
    *("/var/lib/dbus/", "/var/lib/dpkg/", "/var/lib/polkit-1/", "/var/lib/systemd/"),
    *("/tmp/", "/var/tmp/"),  # noqa: S108 - what may not be used
    *("/var/cache/private/", "/var/lib/private/", "/var/spool/"),
    *("/var/cache/appliance", "/var/lib/appliance", "/opt/appliance"),
)
"""Beginnings of paths that are the system's or the appliance's."""
_HOME: Final = re.compile(r"/home/([^/]+/)?")


def _is_data(word: str) -> bool:
    """Tell whether `word` is the path of data, in characters that need no quotes."""
    match = _PATH.fullmatch(word)
    return match is not None and is_data_path(match[1])


def is_data_path(path: str) -> bool:
    """Tell whether an absolute path lies apart from the system's and the appliance's directories.

    A path around one of those, a whole home, and a path with ``..`` do not.
    """
    if {".", ".."} & set(path.split("/")):
        return False
    path = f"{path.rstrip('/')}/"
    around = any(path.startswith(top) or top.startswith(path) for top in _NOT_DATA)
    return not around and _HOME.fullmatch(path) is None


PATHS: Final = _list(
    "a list of absolute paths of data, such as /srv/adapters, without quotes, colons or %, and "
    "outside the system's and the appliance's directories",
    _is_data,
)
DEVICE: Final = _pattern(
    "a GPU or accelerator and its access, such as char-drm rw",
    r"(?:char-(?:drm|kfd|accel|nvidia[\w*-]*|infiniband[\w*]*)"
    r"|/dev/(?:kfd|dri/[\w-]+|accel/[\w-]+|nvidia[\w-]*|infiniband/[\w-]+)) rw?",
)
CREDENTIAL: Final = _pattern(
    "a name and a file in /etc/credstore, such as token:/etc/credstore/token",
    r"[\w-][\w.-]{0,63}:/etc/credstore/[\w-][\w.-]{0,199}",
)
_SYSTEM_CALLS: Final = (
    *("@debug", "kcmp", "perf_event_open", "pidfd_getfd", "process_vm_readv"),
    *("process_vm_writev", "userfaultfd"),
)
SYSTEM_CALLS: Final = _list(f"a list of {', '.join(_SYSTEM_CALLS)}", _SYSTEM_CALLS.__contains__)
"""System calls beyond @system-service that profilers and copies between workers use."""

# --- commands ----------------------------------------------------------------------------

_PROGRAM: Final = re.compile(r"([-@:]*)((?:/[\w.+-]+)+)(?=[ \t]|\Z)", re.ASCII)
_STRANGE_ESCAPE: Final = re.compile(r"""\\(?![nrst"']|x(?!00)[0-9a-fA-F]{2})""")
"""Versions of systemd differ in where a word with another escape ends."""
_STRANGE_SPECIFIER: Final = re.compile(r"%(?!n)")


def _is_unprivileged_command(value: str) -> bool:
    """Tell whether `value` is one command that runs as the backend's user.

    systemd unquotes the first word of a command and then takes prefixes from it, so that word must
    be plain text. It reads further commands, with prefixes of their own, after a lone ``;``. A
    command that it cannot read makes the whole unit unusable.
    """
    program = _PROGRAM.match(value)
    if program is None or {".", ".."} & set(program[2].split("/")):
        return False
    prefixes, rest = program[1], value[program.end() :]
    if _STRANGE_ESCAPE.search(rest.replace("\\\\", "")):
        return False
    if _STRANGE_SPECIFIER.search(rest.replace("%%", "")):
        return False
    try:
        arguments = words_of(rest)
    except ValueError:
        return False
    complete = bool(arguments) or "@" not in prefixes
    return complete and len(set(prefixes)) == len(prefixes) and ";" not in arguments


COMMAND: Final = Form(
    text="one command of the backend's user: an absolute path without quotes, after - @ or : at "
    'most, with no lone ";", and no % but %n and %%',
    accepts=_is_unprivileged_command,
)

# --- keys --------------------------------------------------------------------------------

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_KEY: Final = re.compile(r"[A-Z][A-Za-z0-9]*\Z")
_SECTIONS: Final = ("Unit", "Service")
_MOST_SHOWN: Final = 60

ALLOWED: Final[Mapping[str, Form]] = {
    "Unit.After": UNITS,
    "Unit.Documentation": DOCUMENTATION,
    "Unit.OnFailure": REPORTERS,
    "Unit.StartLimitBurst": whole_number(1, 100),
    "Unit.Wants": UNITS,
    "Service.AllowedCPUs": INDEXES,
    "Service.AllowedMemoryNodes": INDEXES,
    "Service.BindPaths": PATHS,
    "Service.BindReadOnlyPaths": PATHS,
    "Service.CPUAffinity": INDEXES,
    "Service.CPUQuota": CPU_SHARE,
    "Service.CPUSchedulingPolicy": one_of("other", "batch", "idle"),
    "Service.CPUWeight": WEIGHT,
    "Service.DeviceAllow": DEVICE,
    "Service.ExecStartPost": COMMAND,
    "Service.ExecStop": COMMAND,
    "Service.ExecStopPost": COMMAND,
    "Service.IOSchedulingClass": one_of("best-effort", "idle"),
    "Service.IOSchedulingPriority": whole_number(0, 7),
    "Service.IOWeight": WEIGHT,
    "Service.KillMode": one_of("mixed", "control-group"),
    "Service.KillSignal": one_of("SIGTERM", "SIGINT"),
    "Service.LimitMEMLOCK": SIZE_LIMIT,
    "Service.LimitNOFILE": COUNT_LIMIT,
    "Service.LimitNPROC": COUNT_LIMIT,
    "Service.LoadCredential": CREDENTIAL,
    "Service.LogRateLimitBurst": whole_number(0, 1_000_000),
    "Service.LogRateLimitIntervalSec": DURATION,
    "Service.MemoryHigh": MEMORY,
    "Service.MemoryLow": MEMORY,
    "Service.MemoryMax": MEMORY,
    "Service.MemoryMin": MEMORY,
    "Service.MemorySwapMax": MEMORY,
    "Service.NUMAMask": INDEXES,
    "Service.NUMAPolicy": one_of("default", "preferred", "bind", "interleave", "local"),
    # Not below the machine's own services, which must answer while a model computes.
    "Service.Nice": whole_number(-5, 19),
    "Service.OOMPolicy": one_of("stop", "kill"),
    # The daemons have -500: memory is taken from the model, and from users' programs, before.
    "Service.OOMScoreAdjust": whole_number(0, 1000),
    "Service.ReadWritePaths": PATHS,
    "Service.Restart": one_of(
        "no", "always", "on-failure", "on-abnormal", "on-abort", "on-watchdog"
    ),
    "Service.RestartSec": DURATION,
    "Service.SystemCallFilter": SYSTEM_CALLS,
    "Service.TasksMax": TASKS,
}
"""Forms of values by ``Section.Key``. A key that is absent is refused."""

ADDED: Final = frozenset(
    {
        "Unit.After",
        "Unit.Conflicts",
        "Unit.Documentation",
        "Unit.RequiresMountsFor",
        "Unit.Wants",
        "Service.BindPaths",
        "Service.BindReadOnlyPaths",
        "Service.DeviceAllow",
        "Service.ReadWritePaths",
        "Service.SupplementaryGroups",
        "Service.SystemCallFilter",
    }
)
"""Keys whose values join ours: replacing ours would remove what the unit needs."""

_ROOT_MAY: Final = (
    "only root can, for all backends at once, in a drop-in of appliance-backend-.service.d"
)
_DEADLINES: Final = "set it under [deadlines]"
_ENVIRONMENT: Final = "set it under [env]"
_FILES: Final = "the wrapper and the leases must stay visible: add paths with BindReadOnlyPaths"
_GROUPS: Final = (
    "open the files to the group appliance-backend, or set user to a user who may read them"
)
_IDENTITY: Final = 'choose the user with user = "…"; root is refused'
_LIMITED: Final = "a backend has no capabilities: LimitMEMLOCK and Nice need none"
_LOOPBACK: Final = "a backend is reached from this machine only: expose the gateway instead"
_OUTPUT: Final = "a start is judged by its lines in the journal"
_READINESS: Final = "the wrapper tells systemd when the engine is ready"
_RESTARTS: Final = "how an engine ends decides whether it is started again: set Restart"
_STOPS: Final = "a stop must end, and leave no process behind: set stop under [deadlines]"
_TOGETHER: Final = "no other unit may start or stop with a model: use Wants and After"

_ELSEWHERE: Final[Mapping[str, str]] = {
    "Unit.Before": "give the other unit After=",
    "Unit.BindsTo": _TOGETHER,
    "Unit.Conflicts": "name the unit in foreign_units of the settings",
    "Unit.DefaultDependencies": "a backend must stop before the machine does",
    "Unit.Description": "set description",
    "Unit.PartOf": _TOGETHER,
    "Unit.RefuseManualStart": "a switch starts the unit by hand",
    "Unit.RefuseManualStop": "a switch stops the unit by hand",
    "Unit.Requires": _TOGETHER,
    "Unit.RequiresMountsFor": "set mounts under [order]",
    "Unit.Requisite": _TOGETHER,
    "Unit.SourcePath": "SourcePath always names the profile",
    "Unit.Upholds": _TOGETHER,
    "Service.AmbientCapabilities": _LIMITED,
    "Service.CapabilityBoundingSet": _LIMITED,
    "Service.DynamicUser": _IDENTITY,
    "Service.Environment": _ENVIRONMENT,
    "Service.EnvironmentFile": _ENVIRONMENT,
    "Service.ExecCondition": "what runs before the engine, and in which order, is the appliance's",
    "Service.ExecReload": "appliance restart starts the engine with what has changed",
    "Service.ExecStart": "change the engine's own keys, or extra_args",
    "Service.ExecStartPre": "set command under [patch]: it runs before every start",
    "Service.FinalKillSignal": _STOPS,
    "Service.Group": _IDENTITY,
    "Service.IPAccounting": _LOOPBACK,
    "Service.IPAddressAllow": _LOOPBACK,
    "Service.IPAddressDeny": _LOOPBACK,
    "Service.LimitCORE": "prompts and answers are never written to disk",
    "Service.NoNewPrivileges": "a backend never gains privileges",
    "Service.NotifyAccess": _READINESS,
    "Service.PAMName": _IDENTITY,
    "Service.PassEnvironment": _ENVIRONMENT,
    "Service.PermissionsStartOnly": "a command of a backend never runs as root",
    "Service.PrivateNetwork": "no client could reach the port; it is on loopback only anyway",
    "Service.RemainAfterExit": "an engine that has ended no longer serves",
    "Service.RestartForceExitStatus": _RESTARTS,
    "Service.RestartPreventExitStatus": _RESTARTS,
    "Service.RootDirectory": _FILES,
    "Service.RootImage": _FILES,
    "Service.SendSIGKILL": _STOPS,
    "Service.Sockets": "a backend listens by itself: set port or socket",
    "Service.StandardError": _OUTPUT,
    "Service.StandardOutput": _OUTPUT,
    "Service.SuccessExitStatus": _RESTARTS,
    "Service.SupplementaryGroups": _GROUPS,
    "Service.TemporaryFileSystem": _FILES,
    "Service.TimeoutAbortSec": _DEADLINES,
    "Service.TimeoutSec": _DEADLINES,
    "Service.TimeoutStartFailureMode": _DEADLINES,
    "Service.TimeoutStartSec": _DEADLINES,
    "Service.TimeoutStopFailureMode": _DEADLINES,
    "Service.TimeoutStopSec": _DEADLINES,
    "Service.Type": _READINESS,
    "Service.UnsetEnvironment": _ENVIRONMENT,
    "Service.User": _IDENTITY,
    "Service.WatchdogSec": _READINESS,
    "Service.WorkingDirectory": "each backend has its own directory: give the engine absolute paths",
}
"""Advice for refused keys: the setting to use in its place, or the reason against the key."""


def refusals(overrides: Iterable[Override]) -> tuple[str, ...]:
    """Return one sentence for every override that is malformed or would undo a promise."""
    return tuple(reason for o in overrides if (reason := refusal(o)) is not None)


def refusal(override: Override) -> str | None:
    """Return why `override` is not accepted, as one sentence; None: it is accepted."""
    allowed = ALLOWED.get(override.name)
    if allowed is None:
        return f"{override.name}: {_misplaced(override)}"
    for value in override.values:
        # systemd removes blanks around a value, too.
        if _CONTROL.search(value) or not allowed.accepts(value.strip(" ")):
            return f'{override.name}: "{_shown(value)}" is not {allowed.text}'
    return None


def _misplaced(override: Override) -> str:
    if override.section == "Install":
        return "appliance switch decides which profile starts at boot, not [Install]"
    if override.section not in _SECTIONS:
        return "a backend has the sections Unit and Service only"
    if not _KEY.match(override.key):
        return "write it as Section.Key, such as Service.Nice"
    return _ELSEWHERE.get(override.name, f"a profile cannot set it: {_ROOT_MAY}")


def _shown(value: str) -> str:
    """Return `value` on one line of bounded length."""
    line = _CONTROL.sub(" ", value)
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}…"


def override_fault(overrides: Iterable[Override], source: str) -> str | None:
    """Return every refusal of `overrides` of the profile in `source`, a line each; None: there is none."""
    file = source.rpartition("/")[2]
    return "\n".join(f"{file}: [unit] {sentence}" for sentence in refusals(overrides)) or None


def merged(sections: Iterable[Section], overrides: Iterable[Override]) -> tuple[Section, ...]:
    """Return `sections` with the overrides in place of our values, or after them."""
    wanted = list(overrides)
    return tuple(
        Section(name=s.name, entries=_merged(s, [o for o in wanted if o.section == s.name]))
        for s in sections
    )


def _merged(section: Section, overrides: Iterable[Override]) -> tuple[tuple[str, str], ...]:
    entries = list(section.entries)
    for override in overrides:
        new = [(override.key, value) for value in override.values]
        places = [i for i, (key, _) in enumerate(entries) if key == override.key]
        if not places:
            entries += new
        elif override.name in ADDED:
            entries[places[-1] + 1 : places[-1] + 1] = new
        else:
            rest = [e for e in entries[places[0] :] if e[0] != override.key]
            entries[places[0] :] = [*new, *rest]
    return tuple(entries)
