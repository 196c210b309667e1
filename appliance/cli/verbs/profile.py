"""Verbs `appliance profile validate` and `appliance profile render`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from appliance.adapters.systemd.systemctl import Systemctl
from appliance.cli.arguments import Arguments
from appliance.cli.checked_profiles import Checked, checked_profiles
from appliance.cli.terminal import Streams
from appliance.domain.names import unit_of
from appliance.domain.paths import BUILDS
from appliance.install.profile_linting import trap_warnings
from appliance.install.profile_specs import CompiledProfiles, layout_of, load_specs, renderable
from appliance.install.start_warnings import start_warnings
from appliance.planning.units.backend_unit import render
from appliance.planning.units.specs import Layout
from appliance.protocol.control import Exit
from appliance.settings import Settings, load_settings


def run(arguments: Arguments, streams: Streams) -> int:
    """Check profiles, or print the units they make; nothing is installed."""
    settings = load_settings()
    layout = layout_of(settings, Systemctl().version())
    installed = renderable(load_specs(settings), layout)
    checked = list(checked_profiles(arguments.targets, settings, installed, layout))
    if arguments.action == "validate":
        checked = _with_warnings(checked, settings)
        _report(checked, arguments, streams)
    else:
        _render(checked, installed, layout, arguments, streams)
    wrong = [c for c in checked if c.error]
    if not arguments.json or arguments.action == "render":
        for one in wrong:
            streams.err.line(one.error)
    return int(Exit.CONFIG if wrong else Exit.OK)


def _with_warnings(checked: Sequence[Checked], settings: Settings) -> list[Checked]:
    """Return what was checked, with what would keep its engines from starting, and its traps."""
    good = [c.spec for c in checked if c.spec is not None and not c.error]
    traps = trap_warnings(good, settings.applied_dir / BUILDS)
    return [_with_its_warnings(one, settings, traps) for one in checked]


def _with_its_warnings(
    checked: Checked, settings: Settings, traps: Mapping[str, tuple[str, ...]]
) -> Checked:
    if checked.spec is None or checked.error:
        return checked
    applied = checked.spec.applied
    builds_dir = settings.applied_dir / BUILDS
    found = start_warnings({applied.name: applied}, settings.unit_dir, builds_dir)
    return replace(checked, warnings=(*found, *traps[applied.source_path]))


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


def _render(
    checked: Sequence[Checked],
    installed: CompiledProfiles,
    layout: Layout,
    arguments: Arguments,
    streams: Streams,
) -> None:
    wanted = {c.spec.applied.name: c.spec for c in checked if c.spec is not None and not c.error}
    # The others are needed too: a unit names those that it excludes.
    everything = {s.applied.name: s for s in installed.specs} | wanted
    units = render(list(everything.values()), [], layout)
    texts = {unit_of(name): units[unit_of(name)] for name in wanted}
    if arguments.json:
        streams.out.document(texts)
    else:
        streams.out.write("\n".join(texts.values()))
