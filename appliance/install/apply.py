"""The use case `appliance apply`: profiles become units, a polkit rule and the manifest.

load → find hand edits (adopt or discard) → plan → write what changed → reload systemd once →
manifest → tell the supervisor. Each file is replaced atomically, and the manifest comes last:
an apply that is cut short is finished by the next one. A running model is never restarted.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TextIO

from appliance import __version__
from appliance.adapters.files.access import read_access
from appliance.adapters.systemd.systemctl import Systemctl, running, stale
from appliance.adapters.systemd.unit_store import ApplyBusyError, UnitStore
from appliance.domain.errors import ApplianceError, StoreError
from appliance.domain.gateway import Configuration
from appliance.domain.profile import Catalogue
from appliance.install.adoption import Adopted, adopt, take_back
from appliance.install.apply_report import ApplyReport, as_document, as_text
from appliance.install.gateway_compilation import engine_key_warnings, front
from appliance.install.profile_specs import Load, Loaded, layout_of, load_specs, renderable
from appliance.planning.admission.engine_files import access_findings
from appliance.planning.units.apply_plan import Action, ApplyPlan, Installed, plan_apply
from appliance.planning.units.commands import Layout
from appliance.protocol.control import Exit
from appliance.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """What was asked for on the command line."""

    dry_run: bool = False
    adopt: bool = False
    discard: bool = False
    as_json: bool = False


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

    def reload_gateway(self) -> None:
        """Tell the gateway that it is configured otherwise."""
        ...


def run_apply(
    settings: Settings,
    options: ApplyOptions,
    *,
    load: Load | None = None,
    manager: Manager | None = None,
    euid: int | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Apply, report, and return the exit status.

    Args:
        settings: Of this box.
        options: What was asked for.
        load: Reads and compiles the profiles, again after an adoption; None: `load_specs`.
        manager: The service manager; None: this machine's systemd.
        euid: Who asks; None: this process.
        out: For the report; None: stdout.
        err: For errors; None: stderr.
    """
    out, err = out or sys.stdout, err or sys.stderr
    if (os.geteuid() if euid is None else euid) != 0:
        err.write("permission denied: sudo appliance apply\n")
        return Exit.PERMISSION
    if not settings.profiles_dir.is_dir():
        err.write(_no_directory(settings))
        return Exit.CONFIG
    try:
        report = apply(
            settings, options, load or partial(load_specs, settings), manager or Systemctl()
        )
    except ApplyBusyError as error:
        err.write(f"{error}\n")
        return Exit.BUSY
    except ApplianceError as error:
        err.write(f"{error}\n")
        return Exit.FAILED
    err.writelines(f"{message}\n" for message in (*report.warnings, *report.errors))
    out.write(json.dumps(as_document(report)) + "\n" if options.as_json else as_text(report))
    if not report.plan.catalogue and not report.errors and not options.as_json:
        out.write(
            f"no profile in {settings.profiles_dir} yet: put one there, then appliance apply\n"
        )
    return report.exit


def _no_directory(settings: Settings) -> str:
    where = settings.profiles_dir
    return (
        f"{where} does not exist: sudo mkdir -p {where}, put a profile there (NAME.toml),"
        " then sudo appliance apply\n"
    )


def apply(settings: Settings, options: ApplyOptions, load: Load, manager: Manager) -> ApplyReport:
    """One apply under the lock.

    Raises:
        ApplyBusyError: another one is running.
        StoreError: a file cannot be read or written.
        UnitError: systemd refused to read its units again; the files are in place.
    """
    store = UnitStore(
        unit_dir=settings.unit_dir, rule=settings.polkit_rule, applied_dir=settings.applied_dir
    )
    with store.locked():
        layout = layout_of(settings, manager.version())
        gateway = front(settings)
        installed, warnings = _installed(store, manager)
        loaded = renderable(load(), layout)
        adopted = _settle(options, settings, installed, loaded, layout)
        if adopted.originals:
            loaded = renderable(load(), layout)
            if adopted.settings.keys() & loaded.errors.keys():
                adopted = take_back(adopted, loaded.errors)
                loaded = renderable(load(), layout)
        plan = plan_apply(
            loaded.specs,
            installed,
            layout,
            broken=frozenset(loaded.errors),
            settled=adopted.settled,
            source=str(settings.profiles_dir),
            user=settings.daemon_user,
            gateway=gateway.spec,
        )
        told = _told(store) != gateway.spec.configuration
        reloaded = False
        if not options.dry_run:
            store.write_configuration(gateway.spec.configuration, __version__)
            reloaded = _carry_out(plan, store, manager)
            if told or plan.listens_elsewhere:
                manager.reload_gateway()
        return ApplyReport(
            plan=plan,
            errors=(*loaded.errors.values(), *gateway.errors),
            warnings=(
                *warnings,
                *gateway.warnings,
                *engine_key_warnings(plan.catalogue),
                *access_warnings(plan.catalogue, settings.unit_dir),
            ),
            gateway_changed=told,
            adopted=adopted.settings,
            refused=adopted.refused,
            reloaded=reloaded,
            dry_run=options.dry_run,
        )


def _installed(store: UnitStore, manager: Manager) -> tuple[Installed, tuple[str, ...]]:
    backends = manager.backends()
    catalogue: Catalogue = {}
    warnings: list[str] = []
    try:
        recovered = store.catalogue()
        catalogue = recovered.content
        if recovered.damage is not None:
            warnings.append(recovered.damage)
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
    return found, tuple(warnings)


def access_warnings(catalogue: Catalogue, unit_dir: Path) -> Iterator[str]:
    """A sentence for each file that an engine could not open if it was started now."""
    for name, applied in sorted(catalogue.items()):
        for finding in access_findings(applied, read_access(applied, unit_dir)):
            yield f"{name}: {finding.text}"


def _told(store: UnitStore) -> Configuration | None:
    """What the gateway was told last; None: nobody can tell any more."""
    try:
        found = store.configuration()
    except StoreError:
        return None
    return found.content if found.damage is None else None


def _settle(
    options: ApplyOptions,
    settings: Settings,
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
        profiles_dir=settings.profiles_dir,
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
