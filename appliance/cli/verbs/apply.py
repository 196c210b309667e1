"""Verbs `appliance apply` and `appliance edit`, with the screen of an apply's report.

To edit, a copy lies in a folder of its own beside copies of the other profiles, so that it is checked together with them;
keys that earlier releases had are taken out of it first. A copy with errors is kept, and its path is printed. Then the
difference is shown, and the copy installed and applied.
"""

import difflib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NotRequired, TypedDict

from appliance.cli.arguments import Arguments
from appliance.cli.failures import CliError, need_root
from appliance.cli.terminal import Streams, Style, Terminal
from appliance.install.apply import (
    ApplyOptions,
    ApplyReport,
    NoProfilesDirectoryError,
    ServiceManager,
    run_apply,
)
from appliance.install.profile_specs import layout_of, load_specs, renderable
from appliance.model.errors import ApplianceError, PermissionDeniedError, UnknownProfileError
from appliance.model.names import is_profile_name
from appliance.model.wording import no_such_profile
from appliance.settings.loader import load_settings
from appliance.settings.tables import Settings
from appliance.switch.units.apply_plan import Action, Step
from appliance.switch.units.drift import Drift, DriftKind
from appliance.system.files.durable import read_regular, write_file
from appliance.system.profile_files.loading import SUFFIX
from appliance.system.systemd.systemctl import Systemctl
from appliance.system.systemd.unit_files import ApplyBusyError
from appliance.system.toml.editing import migrated
from appliance.wire.control import Exit


class ApplyStep(TypedDict):
    """File, and what was or would be done with it."""

    file: str
    action: str
    note: str | None


class DriftEntry(TypedDict):
    """File that was edited by hand."""

    file: str
    kind: str
    profile: str | None
    diff: str
    refused: list[str]
    """Sentences about edits that no profile can keep."""


class ApplyDocument(TypedDict):
    """Report of an apply."""

    dry_run: bool
    steps: list[ApplyStep]
    drift: list[DriftEntry]
    adopted: Mapping[str, Mapping[str, object]]
    """By profile, hand edits that it keeps now."""
    errors: list[str]
    warnings: list[str]
    profiles: list[str]
    restart: list[str]
    """Profiles whose running model is older than their unit."""
    updated: NotRequired[list[str]]
    """Profiles whose unit stays, and of which something else changes, in force at once."""
    gateway_changed: bool
    reloaded: bool
    exit: int


def run(arguments: Arguments, streams: Streams) -> int:
    """Install units for the profiles, or print what would change."""
    options = ApplyOptions(
        dry_run=arguments.dry_run, adopt=arguments.adopt_changes, discard=arguments.discard
    )
    return apply_profiles(load_settings(), options, streams, as_json=arguments.json)


def run_edit(arguments: Arguments, streams: Streams) -> int:
    """Edit one profile and apply it."""
    if os.geteuid() != 0:
        raise need_root(f"edit {arguments.name}")
    settings = load_settings()
    path = profile_path(settings, arguments.name)
    before = read_regular(path)
    if before is None:
        raise CliError(f"{path} is no regular file: edit what it points to", Exit.CONFIG)
    # With --json stdout is for the report of an apply alone.
    shown = streams.err if arguments.json else streams.out
    with _copies(settings.profiles_dir) as folder:
        copy = folder / path.name
        newer, gone = migrated(before)
        if gone:
            write_file(copy, newer)
        for key, reason in gone.items():
            shown.line(f"{key} is taken out: {reason}")
        after = _edited(copy, settings, streams)
        if after == before:
            shown.line("nothing was changed")
            return int(Exit.OK)
        _show_difference(path.name, before, after, shown)
        if not arguments.yes:
            _need_agreement(copy, streams)
        if read_regular(path) != before:
            raise _kept(copy, f"{path} was changed by another program meanwhile")
        write_file(path, after, like=path.stat())
    return apply_profiles(settings, ApplyOptions(), streams, as_json=arguments.json)


def apply_profiles(
    settings: Settings,
    options: ApplyOptions,
    streams: Streams,
    *,
    as_json: bool = False,
    manager: ServiceManager | None = None,
    euid: int | None = None,
) -> int:
    """Apply, show the report, and return the exit status."""
    out, err = streams.out, streams.err
    try:
        report = run_apply(settings, options, manager=manager, euid=euid)
    except ApplianceError as error:
        err.line(str(error))
        return _status_of_error(error)
    for message in (*report.warnings, *report.errors):
        err.line(message)
    if as_json:
        out.document(as_document(report), indent=None)
    else:
        out.write(as_text(report))
    if not report.plan.catalogue and not report.errors and not as_json:
        where = settings.profiles_dir
        out.line(f"no profile in {where} yet: put one there, then appliance apply")
    return exit_status(report)


def _status_of_error(error: ApplianceError) -> int:
    match error:
        case PermissionDeniedError():
            return Exit.PERMISSION
        case NoProfilesDirectoryError():
            return Exit.CONFIG
        case ApplyBusyError():
            return Exit.BUSY
        case _:
            return Exit.FAILED


def exit_status(report: ApplyReport) -> int:
    """Return 78 for a wrong profile, 1 for hand edits that are left, else 0."""
    if report.errors:
        return Exit.CONFIG
    left = any(d.kind is not DriftKind.SHARED for d in report.plan.drift)
    return Exit.FAILED if left else Exit.OK


_WHAT: Final[Mapping[DriftKind, str]] = {
    DriftKind.EDITED: "was changed by hand",
    DriftKind.FOREIGN: "was not written by appliance apply",
    DriftKind.DROP_IN: "is a drop-in that no profile contains",
    DriftKind.SHARED: "is a drop-in for every backend, in addition to the units of apply",
    DriftKind.ODD: "is no regular file (masked, or a link)",
}


def as_text(report: ApplyReport) -> str:
    """Return the report in lines; profile errors are not part of it."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: ApplyReport) -> Iterator[str]:
    for profile, settings in report.adopted.items():
        verb = "would keep" if report.dry_run else "kept"
        for key, value in settings.items():
            yield f"{verb} in {profile}.toml: {key} = {value}"
    for step in report.plan.steps:
        yield from _step_lines(step, dry_run=report.dry_run)
    for name in report.plan.updated:
        verb = "would change" if report.dry_run else "changed"
        yield f"{verb} {name}, for its next requests and starts; its unit stays as it is"
    if report.gateway_changed:
        yield (
            "would change the gateway's configuration"
            if report.dry_run
            else "changed the gateway's configuration"
        )
    for drift in report.plan.drift:
        yield from _drift_lines(drift, report.refused.get(drift.file, ()))
    yield _summary(report)


def _step_lines(step: Step, *, dry_run: bool) -> Iterator[str]:
    if step.action is Action.LEAVE or (step.action is Action.KEEP and not step.note):
        return
    verb = f"would {step.action}" if dry_run and step.action is not Action.KEEP else step.action
    yield f"{verb} {step.file}"
    if step.note:
        yield f"  {step.note}"


def _drift_lines(drift: Drift, refused: tuple[str, ...]) -> Iterator[str]:
    if drift.kind is DriftKind.SHARED:
        yield f"{drift.file} {_WHAT[drift.kind]}"
        return
    yield f"{drift.file} {_WHAT[drift.kind]} and is left as it is:"
    for line in drift.diff.splitlines():
        yield f"  {line}"
    for sentence in refused:
        yield f"  cannot be kept in a profile: {sentence}"
    if drift.profile is not None and drift.kind is not DriftKind.ODD and not refused:
        yield "  to keep the change: sudo appliance apply --adopt-changes"
    yield "  to drop the change: sudo appliance apply --discard"


def _summary(report: ApplyReport) -> str:
    count = len(report.plan.catalogue)
    applied = "1 profile is" if count == 1 else f"{count} profiles are"
    plan = report.plan
    if not (plan.changes or plan.updated or report.gateway_changed or report.adopted):
        waits = "; a restart is pending" if plan.restart else ""
        return f"{applied} applied; nothing to change{waits}"
    if report.dry_run:
        return f"{applied} applied after this; nothing was changed (--dry-run)"
    return f"{applied} applied"


def as_document(report: ApplyReport) -> ApplyDocument:
    """Return the report as JSON values."""
    plan = report.plan
    return {
        "dry_run": report.dry_run,
        "steps": [
            {"file": s.file, "action": str(s.action), "note": s.note or None} for s in plan.steps
        ],
        "drift": [
            {
                "file": d.file,
                "kind": str(d.kind),
                "profile": d.profile,
                "diff": d.diff,
                "refused": list(report.refused.get(d.file, ())),
            }
            for d in plan.drift
        ],
        "adopted": {name: dict(values) for name, values in report.adopted.items()},
        "errors": list(report.errors),
        "warnings": list(report.warnings),
        "profiles": list(plan.catalogue),
        "restart": list(plan.restart),
        "updated": list(plan.updated),
        "gateway_changed": report.gateway_changed,
        "reloaded": report.reloaded,
        "exit": int(exit_status(report)),
    }


_EDITORS: Final = ("sensible-editor", "editor", "nano", "vi")
_COLOURS: Final = {"+": Style.GREEN, "-": Style.RED, "@": Style.DIM}


def profile_path(settings: Settings, name: str) -> Path:
    """Return the path of a profile's file. Raises `UnknownProfileError`: there is none."""
    path = settings.profiles_dir / f"{name}{SUFFIX}"
    if not is_profile_name(name) or not path.exists():
        known = [p.stem for p in settings.profiles_dir.glob(f"*{SUFFIX}")]
        raise UnknownProfileError(no_such_profile(name, known))
    return path


@contextmanager
def _copies(profiles: Path) -> Iterator[Path]:
    """Return a private folder with a copy of every profile, which stays after an error."""
    folder = Path(tempfile.mkdtemp(prefix="appliance-edit-"))
    for profile in profiles.glob(f"*{SUFFIX}"):
        if profile.is_file():
            shutil.copy(profile, folder)
    yield folder
    shutil.rmtree(folder)


def _edited(copy: Path, settings: Settings, streams: Streams) -> str:
    """Return the copy's text once it is valid. Raises `CliError` when the user gives up."""
    while True:
        _run_editor(copy)
        if error := _error(copy, settings):
            streams.err.line(error)
            # Without a terminal no person can correct the copy: the editor would be started for
            # ever.
            if not sys.stdin.isatty() or not _agreed("edit it again? [Y/n] ", streams):
                raise _kept(copy, "not applied", Exit.CONFIG)
            continue
        return read_regular(copy) or ""


def _run_editor(copy: Path) -> None:
    command = _editor()
    try:
        done = subprocess.run([*command, str(copy)], check=False)  # noqa: S603 - the owner's own editor
    except OSError as error:
        raise CliError(
            f"{command[0]} cannot be run ({error.strerror}): set EDITOR", Exit.FAILED
        ) from error
    if done.returncode != 0:
        raise _kept(copy, f"{command[0]} ended with status {done.returncode}")


def _editor() -> list[str]:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named:
        return shlex.split(named)
    found = next((e for e in _EDITORS if shutil.which(e)), None)
    if found is None:
        raise CliError("no editor found: set EDITOR", Exit.FAILED)
    return [found]


def _error(copy: Path, settings: Settings) -> str:
    """Return the errors of the copy among the other profiles; empty: none."""
    there = replace(settings, profiles_dir=copy.parent)
    loaded = renderable(load_specs(there), layout_of(there, Systemctl().version()))
    return loaded.errors.get(copy.stem, "")


def _show_difference(name: str, before: str, after: str, out: Terminal) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} (now)", f"{name} (new)", lineterm=""
    )
    for line in lines:
        out.line(out.paint(line, _COLOURS.get(line[:1], Style.PLAIN)))


def _need_agreement(copy: Path, streams: Streams) -> None:
    """Ask a person at a terminal. Raises `CliError` without a consent, or without a terminal to ask at."""
    if not sys.stdin.isatty():
        raise _kept(
            copy, "not applied: there is no terminal to ask on; --yes applies without asking"
        )
    if not _agreed("put it in place and apply it? [Y/n] ", streams):
        raise _kept(copy, "not applied")


def _agreed(question: str, streams: Streams) -> bool:
    """Ask for agreement at a terminal."""
    streams.err.write(question)
    answer = sys.stdin.readline()  # empty: the terminal has closed, or Ctrl-D
    return answer.strip().lower() in {"", "y", "yes"} if answer else False


def _kept(copy: Path, why: str, status: int = Exit.FAILED) -> CliError:
    return CliError(f"{why}; your text is kept in {copy}", status)
