"""Values that an override of [unit] may have: one form for each key, a subset of systemd's syntax.

A form accepts only text that means the same to every systemd, whatever the key: no quotes except
in a command, no ``%`` specifiers except ``%n`` in an instance name, no variables, never empty (an
empty assignment resets a list, ours included).

Sources: systemd.syntax(7), systemd.unit(5), systemd.resource-control(5), systemd.exec(5), and
``config_parse_exec`` in load-fragment.c for commands.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from appliance.switch.units.text import words_of


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
