"""[unit] overrides of a profile: what may be replaced or added, and what the appliance promises.

A profile may set any ``Section.Key`` of its unit, in systemd's own syntax, except those that
would undo a promise: one owner of a device, loopback only, never root, a stop that empties
the control group. The refusals say where the setting belongs instead.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from appliance.domain.errors import ProfileError
from appliance.domain.spec import Override
from appliance.planning.unit_text import Section

_KEY: Final = re.compile(r"[A-Z][A-Za-z0-9]*\Z")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SECTIONS: Final = ("Unit", "Service")

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
    }
)
"""Keys whose values join ours: replacing them would take away what the unit needs."""


Rule = Callable[[str], str | None]
"""A value's refusal; None: allowed."""


def _never(reason: str) -> Rule:
    return lambda _: reason


def _unless(allowed: Iterable[str], reason: str) -> Rule:
    values = frozenset(allowed)
    return lambda value: None if value in values else reason


def _not_ours(value: str) -> str | None:
    ours = any(w.startswith("appliance-") and w != "appliance-boot.service" for w in value.split())
    return "the order among the appliance's own units is fixed" if ours else None


def _no_privilege(value: str) -> str | None:
    marks = value[: len(value) - len(value.lstrip("@-:+!|"))]
    return "a command of a backend never runs as root" if {"+", "!"} & set(marks) else None


_GATE_ORDER: Final = _never("what runs before the engine, and in which order, is the appliance's")
_LOOPBACK: Final = _never("a backend is reached from this machine only: expose the front instead")
_DEADLINES: Final = _never("set it under [deadlines]")
_ENVIRONMENT: Final = _never("set it under [env]")
_IDENTITY: Final = _never('choose the user with user = "…"; root is refused')

_REFUSED: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(
        ("Unit.After", "Unit.Before", "Unit.Wants", "Unit.Requires", "Unit.Requisite"), _not_ours
    ),
    **dict.fromkeys(
        ("Unit.BindsTo", "Unit.PartOf", "Unit.Upholds", "Unit.OnSuccess", "Unit.OnFailure"),
        _not_ours,
    ),
    "Unit.Conflicts": _not_ours,
    "Unit.SourcePath": _never("it always names the profile"),
    "Unit.DefaultDependencies": _never("a backend must stop before the machine does"),
    "Unit.RefuseManualStart": _never("a switch starts the unit by hand"),
    "Unit.RefuseManualStop": _never("a switch stops the unit by hand"),
    "Service.Type": _never("readiness is told by the wrapper"),
    "Service.NotifyAccess": _never("readiness is told by the wrapper"),
    "Service.ExecStart": _never("change the engine's own keys, or extra_args"),
    "Service.ExecCondition": _GATE_ORDER,
    "Service.ExecStartPre": _GATE_ORDER,
    "Service.ExecStartPost": _no_privilege,
    "Service.ExecStop": _no_privilege,
    "Service.ExecStopPost": _no_privilege,
    "Service.ExecReload": _no_privilege,
    "Service.RemainAfterExit": _never("an engine that has ended no longer serves"),
    "Service.RestartPreventExitStatus": _never("a refused start must not be tried again"),
    "Service.Restart": _unless(
        ("always", "no", "on-failure", "on-abnormal", "on-abort", "on-watchdog"),
        "an engine that ends has crashed: always, or no",
    ),
    "Service.KillMode": _unless(
        ("mixed", "control-group"), "workers would outlive the engine: mixed, or control-group"
    ),
    "Service.SendSIGKILL": _never("a stop must end, and leave no process behind"),
    "Service.TimeoutSec": _DEADLINES,
    "Service.TimeoutStartSec": _DEADLINES,
    "Service.TimeoutStopSec": _DEADLINES,
    "Service.TimeoutStartFailureMode": _DEADLINES,
    "Service.Environment": _ENVIRONMENT,
    "Service.EnvironmentFile": _ENVIRONMENT,
    "Service.PassEnvironment": _ENVIRONMENT,
    "Service.UnsetEnvironment": _ENVIRONMENT,
    "Service.User": _IDENTITY,
    "Service.Group": _IDENTITY,
    "Service.DynamicUser": _IDENTITY,
    "Service.NoNewPrivileges": _unless(
        ("yes", "true", "on", "1"), "a backend never gains privileges"
    ),
    "Service.AmbientCapabilities": _unless(
        ("", "CAP_IPC_LOCK", "CAP_SYS_NICE"), "only CAP_IPC_LOCK or CAP_SYS_NICE can be granted"
    ),
    "Service.IPAddressAllow": _LOOPBACK,
    "Service.IPAddressDeny": _LOOPBACK,
    "Service.IPIngressFilterPath": _LOOPBACK,
    "Service.IPEgressFilterPath": _LOOPBACK,
    "Service.IPAccounting": _LOOPBACK,
    "Service.RootDirectory": _never("the wrapper and the leases must stay visible"),
    "Service.RootImage": _never("the wrapper and the leases must stay visible"),
    "Service.PrivateNetwork": _unless(
        ("no", "false", "off", "0"), "nobody could reach the port; loopback only is enforced anyway"
    ),
    "Service.Sockets": _never("a backend listens by itself"),
}


def refusals(overrides: Iterable[Override]) -> tuple[str, ...]:
    """One sentence for every override that is malformed or would undo a promise."""
    return tuple(reason for o in overrides if (reason := refusal(o)) is not None)


def refusal(override: Override) -> str | None:
    """Why `override` is not accepted, as one sentence; None: it is."""
    reason = _misplaced(override)
    if reason is None:
        reason = next((r for v in override.values if (r := _bad_value(override, v))), None)
    return None if reason is None else f"{override.name}: {reason}"


def _misplaced(override: Override) -> str | None:
    if override.section == "Install":
        return "who starts at boot is decided by appliance switch, not by [Install]"
    if override.section not in _SECTIONS:
        return "a backend has the sections Unit and Service only"
    if not _KEY.match(override.key):
        return "write it as Section.Key, such as Service.Nice"
    return None


def _bad_value(override: Override, value: str) -> str | None:
    if _CONTROL.search(value) or value.endswith("\\"):
        return "a value is one line without control characters or a final backslash"
    if not value and override.name in ADDED:
        return "an empty value would clear what the appliance sets"
    rule = _REFUSED.get(override.name)
    return rule(value) if rule is not None else None


def check(overrides: Sequence[Override], source: str) -> None:
    """Accept `overrides` of the profile in `source`.

    Raises:
        ProfileError: at least one is refused; every refusal is named, a line each.
    """
    if found := refusals(overrides):
        file = source.rpartition("/")[2]
        raise ProfileError("\n".join(f"{file}: [unit] {sentence}" for sentence in found))


def merged(sections: Iterable[Section], overrides: Iterable[Override]) -> tuple[Section, ...]:
    """`sections` with the overrides in the place of our values, or after them."""
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
