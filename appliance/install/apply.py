"""Use case `appliance apply`: profiles become units, a polkit rule and the manifest.

load → find hand edits (adopt or discard) → plan → write what changed → reload systemd once →
manifest → reload the supervisor. Each file is replaced atomically, and the manifest comes last:
an apply that is cut short is finished by the next one. A running model is never restarted.
With ``--adopt-changes`` hand edits of units become overrides in the profiles.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from appliance import __version__
from appliance.install.compilation import compile_gateway, compile_web, engine_key_warnings
from appliance.install.profile_linting import start_warnings, trap_warnings
from appliance.install.profile_specs import CompiledProfiles, layout_of, load_specs, renderable
from appliance.model.errors import PermissionDeniedError, ProfileError, StoreError
from appliance.model.gateway import Configuration
from appliance.model.names import WEB_SOCKET_UNIT, WEB_UNIT, build_unit_of, unit_of
from appliance.model.paths import BUILDS
from appliance.model.profile import Catalogue
from appliance.settings.tables import Settings
from appliance.switch.units.apply_plan import Action, ApplyPlan, Installed, plan_apply
from appliance.switch.units.backend_unit import Layout, UnitSpec, build_unit, render
from appliance.switch.units.drift import (
    DROP_IN_SUFFIX,
    Adoption,
    Drift,
    DriftKind,
    adoption,
    drop_in,
    find_drift,
    owner_of,
)
from appliance.system.applied.pending_changes import STARTED_FILE, read_started, write_faults
from appliance.system.build_records import CurrentBuilds
from appliance.system.commitment import FileCommitment
from appliance.system.files.durable import read_regular, write_file
from appliance.system.systemd.systemctl import Systemctl, running, stale
from appliance.system.systemd.unit_files import UnitStore
from appliance.system.user_accounts import account_of_uid


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
    from appliance.system.toml.editing import adopted  # noqa: PLC0415

    try:
        changed = adopted(text, found, path.name)
    except ProfileError as error:
        return Adoption(refused=(str(error),))
    write_file(path, changed, like=path.stat())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """Options of one apply."""

    dry_run: bool = False
    adopt: bool = False
    discard: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyReport:
    """Outcome of one apply."""

    plan: ApplyPlan
    errors: tuple[str, ...] = ()
    """Faults of profiles and of addresses in the settings, a complete message each."""
    warnings: tuple[str, ...] = ()
    """Faults that apply has repaired, and those that will prevent a start."""
    adopted: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings that hand edits became in profiles, by profile."""
    refused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reasons why a hand edit cannot be adopted, by file."""
    reloaded: bool = False
    dry_run: bool = False
    gateway_changed: bool = False
    """Whether the gateway's configuration differs from the one applied before."""


class NoProfilesDirectoryError(ProfileError):
    """Lack of a directory of profiles."""


class ServiceManager(Protocol):
    """Service manager of the machine, as far as an apply needs it."""

    def version(self) -> int:
        """Return systemd's major version; 0: unknown."""
        ...

    def backends(self) -> Mapping[str, Mapping[str, str]]:
        """Return properties of the loaded backend units by profile."""
        ...

    def daemon_reload(self) -> bool:
        """Have systemd read its unit files again; False: systemd is not running."""
        ...

    def reload_supervisor(self) -> None:
        """Have the supervisor read the manifest again."""
        ...

    def reload_gateway(self) -> None:
        """Have the gateway read its configuration again."""
        ...

    def reopen(self, socket_unit: str, service_unit: str) -> bool:
        """Have a socket unit that is in use listen where it now says; False: it does not listen."""
        ...


def run_apply(
    settings: Settings,
    options: ApplyOptions,
    *,
    manager: ServiceManager | None = None,
    euid: int | None = None,
) -> ApplyReport:
    """Apply the profiles under apply's lock, and report what changed.

    Args:
        settings: Of this box.
        options: Of the command line.
        manager: None: this machine's systemd.
        euid: User id of the caller; None: this process's.

    Raises:
        PermissionDeniedError: only root may apply.
        NoProfilesDirectoryError: there is none to read.
        ApplyBusyError: another apply is running.
        ProfileError: the directory of profiles cannot be read.
        StoreError: a file cannot be read or written.
        UnitError: systemd refused to read its units again; the files are in place.
    """
    if (os.geteuid() if euid is None else euid) != 0:
        raise PermissionDeniedError("permission denied: sudo appliance apply")
    if not settings.profiles_dir.is_dir():
        where = settings.profiles_dir
        raise NoProfilesDirectoryError(
            f"{where} does not exist: sudo mkdir -p {where}, put a profile there (NAME.toml),"
            " then sudo appliance apply"
        )
    return _apply(settings, options, manager or Systemctl())


def _apply(settings: Settings, options: ApplyOptions, manager: ServiceManager) -> ApplyReport:
    store = UnitStore(
        unit_dir=settings.unit_dir, rule=settings.polkit_rule, applied_dir=settings.applied_dir
    )
    with store.locked():
        layout = layout_of(settings, manager.version())
        gateway = compile_gateway(settings)
        web = compile_web(settings, account_of_uid=account_of_uid, now_unix_s=time.time())
        installed, warnings = _installed(store, manager, settings)
        loaded = renderable(load_specs(settings), layout)
        adopted = _settle(options, settings, installed, loaded, layout)
        if adopted.originals:
            loaded = renderable(load_specs(settings), layout)
            if adopted.settings.keys() & loaded.errors.keys():
                adopted = revert_invalid(adopted, loaded.errors)
                loaded = renderable(load_specs(settings), layout)
        plan = plan_apply(
            loaded.specs,
            installed,
            layout,
            broken=frozenset(loaded.errors),
            settled=adopted.settled,
            source=str(settings.profiles_dir),
            user=settings.daemon_user,
            daemons=replace(gateway.spec, web=web.addresses),
        )
        gateway_changed = _applied_configuration(store) != gateway.spec.configuration
        reloaded = False
        unopened: tuple[str, ...] = ()
        if not options.dry_run:
            write_faults(settings.applied_dir, settings.profiles_dir, loaded.errors)
            store.write_configuration(gateway.spec.configuration, __version__)
            reloaded = _carry_out(plan, store, manager, layout)
            if gateway_changed or plan.listens_elsewhere:
                manager.reload_gateway()
            if plan.moves_page and not manager.reopen(WEB_SOCKET_UNIT, WEB_UNIT):
                unopened = (f"the page does not listen: systemctl status {WEB_SOCKET_UNIT}",)
        builds = CurrentBuilds(str(settings.applied_dir / BUILDS))
        traps = trap_warnings(loaded.specs, builds)
        return ApplyReport(
            plan=plan,
            errors=(*loaded.errors.values(), *gateway.errors, *web.errors, *unopened),
            warnings=(
                *warnings,
                *gateway.warnings,
                *engine_key_warnings(plan.catalogue),
                *start_warnings(plan.catalogue, settings.unit_dir, builds),
                *(sentence for sentences in traps.values() for sentence in sentences),
            ),
            gateway_changed=gateway_changed,
            adopted=adopted.settings,
            refused=adopted.refused,
            reloaded=reloaded,
            dry_run=options.dry_run,
        )


def _installed(
    store: UnitStore, manager: ServiceManager, settings: Settings
) -> tuple[Installed, tuple[str, ...]]:
    backends = manager.backends()
    catalogue: Catalogue = {}
    warnings: list[str] = []
    try:
        recovered = store.catalogue()
        catalogue = recovered.content
        if recovered.damage is not None:
            warnings.append(recovered.damage)
    except StoreError as error:
        # The units themselves are authoritative; only stand-ins for broken profiles are lost.
        warnings.append(f"{error}; it is written anew")
    found = Installed(
        files=store.installed(),
        last_written=store.last_written(),
        catalogue=catalogue,
        running=running(backends),
        started={
            n: form.digest for n, form in read_started(settings.runtime_dir / STARTED_FILE).items()
        },
        committed=frozenset(FileCommitment(settings.state_dir).committed()),
        stale=stale(backends),
    )
    return found, tuple(warnings)


def _applied_configuration(store: UnitStore) -> Configuration | None:
    """Return the gateway's configuration as last applied; None: its file is damaged."""
    try:
        found = store.configuration()
    except StoreError:
        return None
    return found.content if found.damage is None else None


def _settle(
    options: ApplyOptions,
    settings: Settings,
    installed: Installed,
    loaded: CompiledProfiles,
    layout: Layout,
) -> Adopted:
    """Return the hand edits that may be overwritten: adopted ones, or all with --discard."""
    if options.discard:
        return Adopted(settled=frozenset(installed.files))
    if not options.adopt:
        return Adopted()
    return adopt(
        loaded.specs,
        installed,
        layout,
        dry_run=options.dry_run,
        profiles_dir=settings.profiles_dir,
    )


def _carry_out(plan: ApplyPlan, store: UnitStore, manager: ServiceManager, layout: Layout) -> bool:
    """Carry out the plan; returns whether systemd read its units again."""
    for turn in plan.turns:
        store.write({s.file: s.text for s in turn if s.action is not Action.REMOVE})
        store.remove([s.file for s in turn if s.action is Action.REMOVE])
    asks_otherwise = store.replace_build_units(_build_units(plan.catalogue, store, layout))
    reloaded = (plan.reload or asks_otherwise) and manager.daemon_reload()
    if store.write_manifest(plan.catalogue, __version__) or plan.changes:
        manager.reload_supervisor()
    return reloaded


def _build_units(catalogue: Catalogue, store: UnitStore, layout: Layout) -> Mapping[str, str]:
    """Return the units that ask engines about their builds, by file, made from installed backends."""
    files = store.installed()
    units: dict[str, str] = {}
    for name, applied in catalogue.items():
        unit = unit_of(name)
        beginning = f"{unit}{DROP_IN_SUFFIX}/"
        drop_ins = [text or "" for file, text in files.items() if file.startswith(beginning)]
        if text := build_unit(applied, files.get(unit) or "", drop_ins, layout):
            units[build_unit_of(name)] = text
    return units
