"""The use case `appliance apply`: profiles become units, a polkit rule and the manifest.

load → find hand edits (adopt or discard) → plan → write what changed → reload systemd once →
manifest → tell the supervisor. Each file is replaced atomically, and the manifest comes last:
an apply that is cut short is finished by the next one. A running model is never restarted.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TextIO

from appliance import __version__
from appliance.adapters.systemctl import Systemctl, running, stale
from appliance.adapters.unit_store import ApplyBusyError, UnitStore
from appliance.domain.errors import ApplianceError, StoreError
from appliance.domain.profile import Catalogue
from appliance.domain.protocol import Exit
from appliance.planning.apply_plan import Action, ApplyPlan, Installed, plan_apply
from appliance.planning.unit_files import Layout, UnitSpec, problem
from appliance.surfaces.adoption import Adopted, adopt, take_back
from appliance.surfaces.apply_report import ApplyReport, as_document, as_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPaths:
    """Where everything is."""

    prefix: Path = Path("/opt/appliance/current")
    profiles_dir: Path = Path("/etc/appliance/profiles")
    unit_dir: Path = Path("/etc/systemd/system")
    rule_dir: Path = Path("/etc/polkit-1/rules.d")
    applied_dir: Path = Path("/var/lib/appliance-applied")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """What was asked for on the command line, and the settings that units depend on."""

    dry_run: bool = False
    adopt: bool = False
    discard: bool = False
    as_json: bool = False
    foreign_units: tuple[str, ...] = ()
    margin_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The profiles directory, compiled."""

    specs: tuple[UnitSpec, ...]
    errors: Mapping[str, str] = field(default_factory=dict)
    """Messages by profile name (the stem of the file)."""


Load = Callable[[], Loaded]


class Manager(Protocol):
    """The service manager."""

    def version(self) -> int:
        """Its major version; 0: unknown."""
        ...

    def backends(self) -> Mapping[str, Mapping[str, str]]:
        """Properties of the loaded backend units by profile."""
        ...

    def daemon_reload(self) -> bool:
        """Read the unit files again; False: it does not run."""
        ...

    def reload_supervisor(self) -> None:
        """Tell the supervisor about new profiles."""
        ...


def run_apply(
    paths: ApplyPaths,
    options: ApplyOptions,
    load: Load,
    *,
    manager: Manager | None = None,
    euid: int | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Apply, report, and return the exit status.

    Args:
        paths: Where to read and write.
        options: What was asked for.
        load: Reads and compiles the profiles; called again after an adoption.
        manager: The service manager; None: this machine's systemd.
        euid: Who asks; None: this process.
        out: For the report; None: stdout.
        err: For errors; None: stderr.
    """
    out, err = out or sys.stdout, err or sys.stderr
    if (os.geteuid() if euid is None else euid) != 0:
        err.write("only root may apply profiles: sudo appliance apply\n")
        return Exit.PERMISSION
    if not paths.profiles_dir.is_dir():
        err.write(_no_directory(paths))
        return Exit.CONFIG
    try:
        report = apply(paths, options, load, manager or Systemctl())
    except ApplyBusyError as error:
        err.write(f"{error}\n")
        return Exit.BUSY
    except ApplianceError as error:
        err.write(f"{error}\n")
        return Exit.FAILED
    err.writelines(f"{message}\n" for message in report.errors)
    out.write(json.dumps(as_document(report)) + "\n" if options.as_json else as_text(report))
    if not report.plan.catalogue and not report.errors and not options.as_json:
        out.write(f"no profile in {paths.profiles_dir} yet: put one there, then appliance apply\n")
    return report.exit


def _no_directory(paths: ApplyPaths) -> str:
    return (
        f"{paths.profiles_dir} does not exist: sudo mkdir -p {paths.profiles_dir}, put a profile"
        " there (NAME.toml), then sudo appliance apply\n"
    )


def apply(paths: ApplyPaths, options: ApplyOptions, load: Load, manager: Manager) -> ApplyReport:
    """One apply under the lock.

    Raises:
        ApplyBusyError: another one is running.
        StoreError: a file cannot be read or written.
        UnitError: systemd refused to read its units again; the files are in place.
    """
    store = UnitStore(
        unit_dir=paths.unit_dir, rule_dir=paths.rule_dir, applied_dir=paths.applied_dir
    )
    with store.locked():
        layout = Layout(
            prefix=str(paths.prefix),
            version=__version__,
            systemd=manager.version(),
            foreign_units=options.foreign_units,
            margin_bytes=options.margin_bytes,
        )
        installed, warnings = _installed(store, manager)
        loaded = _renderable(load(), layout)
        adopted = _settle(options, paths, installed, loaded, layout)
        if adopted.originals:
            loaded = _renderable(load(), layout)
            if adopted.settings.keys() & loaded.errors.keys():
                adopted = take_back(adopted, loaded.errors)
                loaded = _renderable(load(), layout)
        plan = plan_apply(
            loaded.specs,
            installed,
            layout,
            broken=frozenset(loaded.errors),
            settled=adopted.settled,
            source=str(paths.profiles_dir),
        )
        reloaded = False if options.dry_run else _carry_out(plan, store, manager)
        return ApplyReport(
            plan=plan,
            errors=(*warnings, *loaded.errors.values()),
            adopted=adopted.settings,
            refused=adopted.refused,
            reloaded=reloaded,
            dry_run=options.dry_run,
        )


def _installed(store: UnitStore, manager: Manager) -> tuple[Installed, Sequence[str]]:
    backends = manager.backends()
    catalogue: Catalogue = {}
    warnings: list[str] = []
    try:
        catalogue = store.catalogue()
    except StoreError as error:
        # The units themselves are the truth; only what stands in for a broken profile is lost.
        warnings.append(f"{error}; it is written anew")
    found = Installed(
        files=store.installed(),
        last_written=store.last_written(),
        catalogue=catalogue,
        running=running(backends),
        stale=stale(backends),
    )
    return found, warnings


def _renderable(loaded: Loaded, layout: Layout) -> Loaded:
    """`loaded` with the profiles that no unit can be made from among the errors."""
    problems = {s.applied.name: text for s in loaded.specs if (text := problem(s, layout))}
    return Loaded(
        specs=tuple(s for s in loaded.specs if s.applied.name not in problems),
        errors=dict(loaded.errors) | problems,
    )


def _settle(
    options: ApplyOptions,
    paths: ApplyPaths,
    installed: Installed,
    loaded: Loaded,
    layout: Layout,
) -> Adopted:
    """Which hand edits may be overwritten, because they were adopted or are to be dropped."""
    if options.discard:
        return Adopted(settled=frozenset(installed.files))
    if not options.adopt:
        return Adopted()
    return adopt(
        loaded.specs,
        installed,
        layout,
        dry_run=options.dry_run,
        profiles_dir=paths.profiles_dir,
    )


def _carry_out(plan: ApplyPlan, store: UnitStore, manager: Manager) -> bool:
    """Do what the plan says; returns whether systemd read its units again."""
    for step in plan.changes:
        if step.action is Action.REMOVE:
            store.remove(step.file)
        else:
            store.write(step.file, step.text)
    reloaded = plan.reload and manager.daemon_reload()
    if store.write_manifest(plan.catalogue, __version__) or plan.changes:
        manager.reload_supervisor()
    return reloaded
