"""Screen and JSON document of an apply: what changed, or would, and its exit status."""

from collections.abc import Iterator, Mapping
from typing import Final

from appliance.cli.terminal import Streams
from appliance.install.apply import (
    ApplyOptions,
    ApplyReport,
    NoProfilesDirectoryError,
    ServiceManager,
    run_apply,
)
from appliance.model.errors import ApplianceError, PermissionDeniedError
from appliance.settings.tables import Settings
from appliance.switch.units.apply_plan import Action, Step
from appliance.switch.units.drift import Drift, DriftKind
from appliance.system.systemd.unit_store import ApplyBusyError
from appliance.wire.control import Exit


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


def as_document(report: ApplyReport) -> Mapping[str, object]:
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
