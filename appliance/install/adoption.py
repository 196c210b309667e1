"""`appliance apply --adopt-changes`: hand edits of units become overrides in the profiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from appliance.model.errors import ProfileError
from appliance.model.names import unit_of
from appliance.switch.units.apply_plan import Installed
from appliance.switch.units.backend_unit import render
from appliance.switch.units.drift import (
    Adoption,
    Drift,
    DriftKind,
    adoption,
    drop_in,
    find_drift,
    owner_of,
)
from appliance.switch.units.specs import Layout, UnitSpec
from appliance.system.files.durable import read_regular, write_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """Outcome of an adoption of hand edits."""

    settled: frozenset[str] = frozenset()
    """Files that may be overwritten now."""
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings written into profiles, by profile."""
    refused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reasons why a file's edits were not adopted, by file."""
    originals: Mapping[Path, str] = field(default_factory=dict)
    """Texts of changed profiles before the change, by profile."""


def adopt(
    specs: Sequence[UnitSpec],
    installed: Installed,
    layout: Layout,
    *,
    profiles_dir: Path,
    dry_run: bool,
) -> Adopted:
    """Write every hand edit that a profile can express into it, all or none of a profile's edits.

    Raises:
        StoreError: a profile cannot be read or written.
    """
    by_profile: dict[str | None, list[Drift]] = {}
    for drift in find_drift(installed.files, installed.last_written).values():
        if drift.kind is DriftKind.SHARED:
            continue
        by_profile.setdefault(drift.profile, []).append(drift)
    known = {s.applied.name: s for s in specs}
    settled: set[str] = set()
    originals: dict[Path, str] = {}
    settings: dict[str, Mapping[str, str]] = {}
    refused: dict[str, tuple[str, ...]] = {}
    for name, drifts in by_profile.items():
        files = [d.file for d in drifts]
        if name is None or name not in known or any(d.kind is DriftKind.ODD for d in drifts):
            refused |= dict.fromkeys(files, ("the unit has no valid profile",))
            continue
        found = _adoption(known[name], drifts, installed, layout)
        if not found.refused and not dry_run:
            path = profiles_dir / f"{name}.toml"
            originals[path] = read_regular(path) or ""
            found = _written(found, path, originals[path])
        if found.refused:
            refused |= dict.fromkeys(files, found.refused)
            continue
        settings[name] = _described(found)
        settled.update(files)
    return Adopted(
        settled=frozenset(settled),
        settings=settings,
        refused=refused,
        originals={p: text for p, text in originals.items() if p.stem in settings},
    )


def revert_invalid(outcome: Adopted, errors: Mapping[str, str]) -> Adopted:
    """Restore the profiles that an adoption made invalid; returns the adoption without them.

    Raises:
        StoreError: a profile cannot be written.
    """
    bad = outcome.settings.keys() & errors.keys()
    for path, text in outcome.originals.items():
        if path.stem in bad:
            write_file(path, text, like=path.stat())
    files = {file for file in outcome.settled if owner_of(file) in bad}
    reasons = {file: (errors[owner_of(file) or ""],) for file in files}
    return Adopted(
        settled=outcome.settled - files,
        settings={name: s for name, s in outcome.settings.items() if name not in bad},
        refused=dict(outcome.refused) | reasons,
        originals={p: text for p, text in outcome.originals.items() if p.stem not in bad},
    )


def _adoption(
    spec: UnitSpec, drifts: Sequence[Drift], installed: Installed, layout: Layout
) -> Adoption:
    """Return the sum of the unit's own edit and its drop-ins, in systemd's order."""
    unit = unit_of(spec.applied.name)
    base = installed.last_written.get(unit) or render([spec], [], layout)[unit]
    edited = installed.files.get(unit) or base
    for drift in sorted(drifts, key=lambda d: d.file):
        if drift.kind is DriftKind.DROP_IN:
            edited = drop_in(edited, installed.files[drift.file] or "")
    return adoption(base, edited)


def _described(found: Adoption) -> Mapping[str, str]:
    """Return what an adoption sets in a profile: ``[unit] Service.Nice`` to its value."""
    overrides = {f"[unit] {o.name}": ", ".join(o.values) for o in found.overrides}
    return overrides | {f"[env] {name}": value for name, value in found.environment.items()}


def _written(found: Adoption, path: Path, text: str) -> Adoption:
    """Write `found` into the profile; returns it, or a refusal when that is not possible."""
    # tomlkit costs a sixth of every apply, and nearly none adopts anything.
    from appliance.system.profile_files.editing import adopted  # noqa: PLC0415

    try:
        changed = adopted(text, found, path.name)
    except ProfileError as error:
        return Adoption(refused=(str(error),))
    write_file(path, changed, like=path.stat())
    return found
