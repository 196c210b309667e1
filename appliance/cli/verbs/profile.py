"""Verbs `appliance profile validate` and `appliance profile render`."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from appliance.adapters.files.access import follow
from appliance.adapters.model_files.reading import read_model
from appliance.adapters.profile_files.loading import SUFFIX, load_profile, source_of
from appliance.adapters.systemd.systemctl import Systemctl
from appliance.cli.arguments import Arguments
from appliance.cli.terminal import Streams
from appliance.domain.errors import ProfileError, UnknownProfileError
from appliance.domain.names import unit_of
from appliance.domain.paths import BUILDS
from appliance.install.profile_specs import (
    CompiledProfiles,
    context_of,
    layout_of,
    load_specs,
    renderable,
)
from appliance.install.start_warnings import start_warnings
from appliance.planning.units.backend_unit import problem, render
from appliance.planning.units.specs import Layout, UnitSpec, spec_of
from appliance.planning.wording import no_such_profile
from appliance.protocol.control import Exit
from appliance.settings import Settings, load_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Profile that was checked."""

    file: str
    spec: UnitSpec | None
    """Parsed profile; None: it has errors."""
    error: str = ""
    """Errors in complete lines; empty: none."""
    warnings: tuple[str, ...] = ()
    """Sentences about files that its engine would not find or could not open."""


def run(arguments: Arguments, streams: Streams) -> int:
    """Check profiles, or print the units they make; nothing is installed."""
    settings = load_settings()
    layout = layout_of(settings, Systemctl().version())
    installed = renderable(load_specs(settings), layout)
    checked = list(_checked(arguments.targets, settings, installed, layout))
    if arguments.action == "validate":
        checked = [_with_warnings(one, settings) for one in checked]
        _report(checked, arguments, streams)
    else:
        _render(checked, installed, layout, arguments, streams)
    wrong = [c for c in checked if c.error]
    if not arguments.json or arguments.action == "render":
        for one in wrong:
            streams.err.line(one.error)
    return int(Exit.CONFIG if wrong else Exit.OK)


def _checked(
    targets: Sequence[str], settings: Settings, installed: CompiledProfiles, layout: Layout
) -> Iterator[Checked]:
    specs = {spec.applied.name: spec for spec in installed.specs}
    for target in targets or sorted({*specs, *installed.errors}):
        if target.endswith(SUFFIX) or "/" in target:
            yield _file(Path(target), settings, layout)
        elif target in specs or target in installed.errors:
            yield Checked(
                file=f"{target}{SUFFIX}",
                spec=specs.get(target),
                error=installed.errors.get(target, ""),
            )
        else:
            known = {*specs, *installed.errors}
            raise UnknownProfileError(no_such_profile(target, known))


def _file(path: Path, settings: Settings, layout: Layout) -> Checked:
    """Check a file by itself, wherever it is: another profile's port is no error."""
    try:
        profile = load_profile(path)
        source = source_of(path.absolute(), hashlib.sha256(path.read_bytes()).hexdigest())
        spec = spec_of(
            profile,
            source,
            context_of(settings),
            user=settings.backend_user,
            look=read_model,
            follow=follow,
        )
    except ProfileError as error:
        return Checked(file=str(path), spec=None, error=str(error))
    return Checked(file=str(path), spec=spec, error=problem(spec, layout) or "")


def _with_warnings(checked: Checked, settings: Settings) -> Checked:
    """Return what was checked, with what would keep its engine from starting."""
    if checked.spec is None or checked.error:
        return checked
    applied = checked.spec.applied
    builds_dir = settings.applied_dir / BUILDS
    warnings = start_warnings({applied.name: applied}, settings.unit_dir, builds_dir)
    return replace(checked, warnings=tuple(warnings))


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
