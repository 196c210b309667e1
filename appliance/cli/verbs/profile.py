"""Verbs `appliance profile validate` and `appliance profile render`."""

from collections.abc import Sequence
from dataclasses import replace

from appliance.cli.arguments import Arguments
from appliance.cli.checked_profiles import Checked, ProfileCheck, check_profiles
from appliance.cli.terminal import Streams
from appliance.install.profile_linting import start_warnings, trap_warnings, unasked_options
from appliance.model.names import unit_of
from appliance.switch.units.backend_unit import render
from appliance.wire.control import Exit


def run(arguments: Arguments, streams: Streams) -> int:
    """Check profiles, or print the units they make; nothing is installed."""
    check = check_profiles(arguments.targets)
    if arguments.action == "validate":
        _report(_with_warnings(check), arguments, streams)
    else:
        _render(check, arguments, streams)
    wrong = [c for c in check.profiles if c.error]
    if not arguments.json or arguments.action == "render":
        for one in wrong:
            streams.err.line(one.error)
    return int(Exit.CONFIG if wrong else Exit.OK)


def _with_warnings(check: ProfileCheck) -> list[Checked]:
    """Return what was checked, with what would keep its engines from starting, and its traps."""
    builds, unit_dir = check.builds(), check.settings.unit_dir
    traps = trap_warnings(check.specs, builds)
    found: list[Checked] = []
    for one in check.profiles:
        warnings: tuple[str, ...] = ()
        if one.spec is not None:
            applied = one.spec.applied
            starts = start_warnings({applied.name: applied}, unit_dir, builds)
            unasked = unasked_options(applied, builds.of(applied))
            options = (f"{applied.name}: {unasked}",) if unasked else ()
            warnings = (*starts, *options, *traps[applied.source_path])
        found.append(replace(one, warnings=warnings))
    return found


def _report(checked: Sequence[Checked], arguments: Arguments, streams: Streams) -> None:
    if arguments.json:
        document = [
            {
                "file": c.file,
                "ok": not c.error,
                "error": c.error or None,
                "warnings": list(c.warnings),
            }
            for c in checked
        ]
        streams.out.document(document)
        return
    for one in checked:
        if not one.error:
            streams.out.line(f"{one.file}: ok")
        for warning in one.warnings:
            streams.err.line(warning)
    if not checked:
        streams.err.line("there is no profile to check")


def _render(check: ProfileCheck, arguments: Arguments, streams: Streams) -> None:
    wanted = {spec.applied.name: spec for spec in check.specs}
    # The others are needed too: a unit names those that it excludes.
    everything = {s.applied.name: s for s in check.installed.specs} | wanted
    units = render(list(everything.values()), [], check.layout)
    texts = {unit_of(name): units[unit_of(name)] for name in wanted}
    if arguments.json:
        streams.out.document(texts)
    else:
        streams.out.content("\n".join(texts.values()))
