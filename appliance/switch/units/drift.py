"""Hand edits: installed files that differ from what apply wrote, and the edits that can be kept.

==========  ==================================================  =====================
kind        what it is                                          can be adopted
==========  ==================================================  =====================
edited      our header, another content                         the expressible part
foreign     our name, no header                                 if a profile has it
drop-in     UNIT.d/X.conf of a backend (``systemctl edit``)     the expressible part
shared      a drop-in for every backend: the operator's     no need: it is no fault
odd         not a regular file: masked, a link, unreadable      never
==========  ==================================================  =====================

A running model keeps the form in which it was started until it is restarted, whoever changes the unit: apply,
an editor, `systemctl edit`. Two forms are compared by their digests (`start_digest`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from enum import StrEnum
from hashlib import sha256
from typing import Final

from appliance.model.names import profile_of, unit_of
from appliance.model.profile_values import Override
from appliance.switch.units.daemon_drop_ins import DAEMON_FILES, RULE_FILE
from appliance.switch.units.overrides import ADDED, refusal
from appliance.switch.units.text import Section, seal_holds, sealed_body, sections_of, words_of

DROP_IN_SUFFIX: Final = ".d"


class DriftKind(StrEnum):
    """Kind of a difference from what apply wrote."""

    EDITED = "edited"
    FOREIGN = "foreign"
    DROP_IN = "drop-in"
    SHARED = "shared"
    ODD = "odd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Drift: one file that a person changed."""

    file: str
    kind: DriftKind
    profile: str | None
    """Profile that the file belongs to; None: the polkit rule, or no valid name."""
    diff: str
    """Unified diff against what apply last wrote; empty where there is nothing to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """Adoption of an edit: its form in the profile."""

    overrides: tuple[Override, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    """Sentences on changes that a profile cannot express; with any, nothing is adopted."""


def comment_of(file: str) -> str:
    """Return the characters with which a comment begins in `file`."""
    return "//" if file == RULE_FILE else "#"


def owner_of(file: str) -> str | None:
    """Return the profile to which `file`, a unit or a drop-in, belongs; None: none."""
    unit, _, _ = file.partition("/")
    return profile_of(unit.removesuffix(DROP_IN_SUFFIX))


def find_drift(
    installed: Mapping[str, str | None], last_written: Mapping[str, str]
) -> Mapping[str, Drift]:
    """Return every installed file that differs from what apply wrote, by name.

    Args:
        installed: Text by file name; None: not a regular file.
        last_written: Apply's own copies.
    """
    return {
        file: Drift(
            file=file,
            kind=kind,
            profile=owner_of(file),
            diff=diff(last_written.get(file, ""), text or "", file),
        )
        for file, text in sorted(installed.items())
        if (kind := _kind(file, text)) is not None
    }


def _kind(file: str, text: str | None) -> DriftKind | None:
    if file.startswith(f"{unit_of('')}{DROP_IN_SUFFIX}/"):
        return DriftKind.SHARED
    if text is None:
        return DriftKind.ODD
    if "/" in file and file not in DAEMON_FILES:
        return DriftKind.DROP_IN
    comment = comment_of(file)
    if seal_holds(text, comment):
        return None
    return DriftKind.EDITED if sealed_body(text, comment) is not None else DriftKind.FOREIGN


def diff(before: str, after: str, file: str) -> str:
    """Return a unified diff of two texts of `file`; empty when they are equal."""
    lines = unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"{file} (as applied)" if before else "/dev/null",
        file,
        n=2,
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def adoption(base: str, edited: str) -> Adoption:
    """Return the overrides and environment that turn the unit text `base` into `edited`.

    Order, comments and blank lines mean nothing.
    """
    before, after = _values(sections_of(base)), _values(sections_of(edited))
    overrides: list[Override] = []
    environment: dict[str, str] = {}
    refused: list[str] = []
    for place in dict.fromkeys([*before, *after]):
        old, new = before.get(place, ()), after.get(place, ())
        if old == new:
            continue
        if place == ("Service", "Environment"):
            changed, problems = _environment(old, new)
            environment |= changed
            refused += problems
            continue
        override, problem = _override(place, old, new)
        overrides += [override] if override else []
        refused += [problem] if problem else []
    return Adoption(overrides=tuple(overrides), environment=environment, refused=tuple(refused))


def drop_in(base: str, text: str) -> str:
    """Return `base` with the assignments of a drop-in after its own; an empty one clears a list."""
    merged = dict(_values(sections_of(base)))
    for place, values in _values(sections_of(text)).items():
        joins = f"{place[0]}.{place[1]}" in ADDED or place[1] in _LISTS
        ours = merged.get(place, ()) if joins else ()
        for value in values:
            ours = (*ours, value) if value else ()
        merged[place] = ours
    return "".join(
        f"[{section}]\n{key}={value}\n" for (section, key), vs in merged.items() for value in vs
    )


_LISTS: Final = frozenset({"Environment", "ExecStart", "ExecCondition", "SystemCallFilter"})
"""Keys to whose values a drop-in adds, besides those of `ADDED`."""

_Place = tuple[str, str]


def _values(sections: Iterable[Section]) -> Mapping[_Place, tuple[str, ...]]:
    found: dict[_Place, tuple[str, ...]] = {}
    for section in sections:
        for key, value in section.entries:
            place = (section.name, key)
            found[place] = (*found.get(place, ()), value)
    return found


def _override(
    place: _Place, old: Sequence[str], new: Sequence[str]
) -> tuple[Override | None, str | None]:
    section, key = place
    name = f"{section}.{key}"
    if not new:
        return None, f"{name} was removed: set another value, or leave it"
    if name not in ADDED:
        override = Override(section=section, key=key, values=tuple(new))
    else:
        before = [w for value in old for w in value.split()]
        words = [w for value in new for w in value.split()]
        if lost := [w for w in before if w not in words]:
            return None, f"{name}: {lost[0]} was removed, and the appliance needs it"
        extra = _extra_values(old, new)
        override = Override(section=section, key=key, values=extra)
    problem = refusal(override)
    return (None, problem) if problem else (override, None)


def _extra_values(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Return the additions in `new`: whole values where a line is new, else its new words."""
    whole = [value for value in new if value not in old]
    if len(new) - len(whole) == len(old):
        return tuple(whole)
    known = {w for value in old for w in value.split()}
    return tuple(
        " ".join(w for w in value.split() if w not in known)
        for value in whole
        if any(w not in known for w in value.split())
    )


def _environment(old: Sequence[str], new: Sequence[str]) -> tuple[Mapping[str, str], Sequence[str]]:
    try:
        before, after = _assignments(old), _assignments(new)
    except ValueError:
        return {}, ["Service.Environment: the quotes do not match"]
    gone = [
        f"Service.Environment: {n} was removed: set it to a value" for n in before.keys() - after
    ]
    return {n: v for n, v in after.items() if before.get(n) != v}, sorted(gone)


def _assignments(values: Sequence[str]) -> Mapping[str, str]:
    pairs = (word.partition("=") for value in values for word in words_of(value))
    return {name: value.replace("%%", "%") for name, _, value in pairs}


_READ_ANEW: Final = frozenset(
    {
        "ExecCondition",
        "Restart",
        "RestartMaxDelaySec",
        "RestartPreventExitStatus",
        "RestartSec",
        "RestartSteps",
        "TimeoutStartFailureMode",
        "TimeoutStartSec",
        "TimeoutStopSec",
    }
)
"""Keys of [Service] that a daemon-reload puts in force, as it does everything in [Unit]."""


def start_digest(unit: str, drop_ins: Iterable[str] = ()) -> str:
    """Return the digest of the form in which a unit would be started now.

    Args:
        unit: Text of the unit.
        drop_ins: Texts of its drop-ins, in systemd's order.
    """
    text = unit
    for one in drop_ins:
        text = drop_in(text, one)
    services = (section for section in sections_of(text) if section.name == "Service")
    entries = (entry for service in services for entry in service.entries)
    # Sorted by key alone: the order of the values of one key means something.
    kept = sorted((e for e in entries if e[0] not in _READ_ANEW), key=lambda entry: entry[0])
    return sha256("\n".join(f"{key}={value}" for key, value in kept).encode()).hexdigest()
