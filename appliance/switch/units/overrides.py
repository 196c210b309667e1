"""Overrides in [unit] of a profile: keys that may be set, and where other settings belong.

A profile may set the keys of `ALLOWED`, each to a value of its form. Everything else could undo a
promise (one owner of a device, loopback only, never root, a stop that empties the control group),
so it is refused, with the way to do it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from appliance.model.profile_values import Override
from appliance.switch.units import override_values as form
from appliance.switch.units.text import Section

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_KEY: Final = re.compile(r"[A-Z][A-Za-z0-9]*\Z")
_SECTIONS: Final = ("Unit", "Service")
_MOST_SHOWN: Final = 60

ALLOWED: Final[Mapping[str, form.Form]] = {
    "Unit.After": form.UNITS,
    "Unit.Documentation": form.DOCUMENTATION,
    "Unit.OnFailure": form.REPORTERS,
    "Unit.StartLimitBurst": form.whole_number(1, 100),
    "Unit.Wants": form.UNITS,
    "Service.AllowedCPUs": form.INDEXES,
    "Service.AllowedMemoryNodes": form.INDEXES,
    "Service.BindPaths": form.PATHS,
    "Service.BindReadOnlyPaths": form.PATHS,
    "Service.CPUAffinity": form.INDEXES,
    "Service.CPUQuota": form.CPU_SHARE,
    "Service.CPUSchedulingPolicy": form.one_of("other", "batch", "idle"),
    "Service.CPUWeight": form.WEIGHT,
    "Service.DeviceAllow": form.DEVICE,
    "Service.ExecStartPost": form.COMMAND,
    "Service.ExecStop": form.COMMAND,
    "Service.ExecStopPost": form.COMMAND,
    "Service.IOSchedulingClass": form.one_of("best-effort", "idle"),
    "Service.IOSchedulingPriority": form.whole_number(0, 7),
    "Service.IOWeight": form.WEIGHT,
    "Service.KillMode": form.one_of("mixed", "control-group"),
    "Service.KillSignal": form.one_of("SIGTERM", "SIGINT"),
    "Service.LimitMEMLOCK": form.SIZE_LIMIT,
    "Service.LimitNOFILE": form.COUNT_LIMIT,
    "Service.LimitNPROC": form.COUNT_LIMIT,
    "Service.LoadCredential": form.CREDENTIAL,
    "Service.LogRateLimitBurst": form.whole_number(0, 1_000_000),
    "Service.LogRateLimitIntervalSec": form.DURATION,
    "Service.MemoryHigh": form.MEMORY,
    "Service.MemoryLow": form.MEMORY,
    "Service.MemoryMax": form.MEMORY,
    "Service.MemoryMin": form.MEMORY,
    "Service.MemorySwapMax": form.MEMORY,
    "Service.NUMAMask": form.INDEXES,
    "Service.NUMAPolicy": form.one_of("default", "preferred", "bind", "interleave", "local"),
    # Not below the machine's own services, which must answer while a model computes.
    "Service.Nice": form.whole_number(-5, 19),
    "Service.OOMPolicy": form.one_of("stop", "kill"),
    # The daemons have -500: memory is taken from the model, and from users' programs, before.
    "Service.OOMScoreAdjust": form.whole_number(0, 1000),
    "Service.ReadWritePaths": form.PATHS,
    "Service.Restart": form.one_of(
        "no", "always", "on-failure", "on-abnormal", "on-abort", "on-watchdog"
    ),
    "Service.RestartSec": form.DURATION,
    "Service.SystemCallFilter": form.SYSTEM_CALLS,
    "Service.TasksMax": form.TASKS,
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
