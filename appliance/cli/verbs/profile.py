"""Verb `appliance profile`: check profiles, show their units and their traps, remove them; make and import them.

Another action is its word in `appliance.cli.grammar` and its line in `run`.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import NotRequired, TypedDict

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of, read_status
from appliance.cli.failures import CliError, need_root
from appliance.cli.terminal import Streams, Style, Terminal
from appliance.cli.verbs.apply import profile_path
from appliance.install.profile_linting import (
    LintReport,
    lint_profiles,
    start_warnings,
    trap_warnings,
    unasked_options,
)
from appliance.install.profile_specs import (
    CompiledProfiles,
    context_of,
    layout_of,
    load_specs,
    renderable,
)
from appliance.model.errors import ProfileError, UnknownProfileError
from appliance.model.gpus import GpuHardware
from appliance.model.names import unit_of
from appliance.model.paths import BUILDS
from appliance.model.wording import joined, no_such_profile
from appliance.profiles.compilation import spec_of
from appliance.profiles.linting.lint import (
    Lint,
    SprungTrap,
    known_version,
    unchecked_sentence,
)
from appliance.settings.loader import load_settings
from appliance.settings.tables import Settings
from appliance.status.profile_verdict import removal_refusal
from appliance.switch.units.backend_unit import Layout, UnitSpec, problem, render
from appliance.system.build_records import CurrentBuilds
from appliance.system.files.access import follow
from appliance.system.files.durable import remove_files
from appliance.system.model_files.reading import read_adapter_ranks, read_model
from appliance.system.profile_files.loading import SUFFIX, load_profile, source_of
from appliance.system.systemd.systemctl import Systemctl
from appliance.wire.control import Exit


class FoundTrap(TypedDict):
    """Trap that a profile has."""

    trap: str
    """Name of the trap, as `allow_traps` takes it."""
    statement: str
    """Consequence, as a clause."""
    detail: str
    """Part of the profile, its model or the GPUs that is the trap."""
    keys: list[str]
    """Keys of the profile that make it, first the one to change."""
    advice: str
    source: str
    checked: str
    """Day on which the source was last looked at, ISO 8601."""
    builds: str
    """Builds of the engine for which it holds."""
    certain: bool
    """Whether the engine's build is known to be one of them."""


class LintedProfile(TypedDict):
    """One profile that was linted."""

    file: str
    ok: bool
    """Whether the file is valid."""
    error: str | None
    """Faults of the file, in complete lines; None: it is valid."""
    build: str | None
    """Version of the engine; None: not known."""
    traps: list[FoundTrap]
    allowed: list[str]
    """Traps that the profile has and names in `allow_traps`."""
    unchecked: list[str]
    """Traps that the profile has on some GPUs, where they could not be read."""
    notes: list[str]
    """Sentences about names in `allow_traps` that mean nothing any more."""
    options: NotRequired[list[str]]
    """Sentences about options that the engine's program lacks, or that were not compared with it yet."""


class LintedGpu(TypedDict):
    """One GPU that was looked at."""

    index: int
    name: str
    compute_capability: str | None
    """None: the driver does not say."""
    nvlinks: int | None
    """Number of NVLinks that are up; None: the driver does not say."""


class LintDocument(TypedDict):
    """Traps of profiles."""

    profiles: list[LintedProfile]
    gpus: list[LintedGpu]
    """GPUs that were looked at; empty: none had to be, or none can be read."""
    gpu_problem: str | None
    """Reason why the GPUs could not be read; None: they were, or did not have to be."""


class RemovedProfiles(TypedDict):
    """Files of profiles that were removed."""

    removed: list[str]
    """Paths of the files."""
    still_applied: list[str]
    """Names of those whose units are there until the next apply."""


class CheckedProfile(TypedDict):
    """Profile file that was checked."""

    file: str
    ok: bool
    error: str | None
    warnings: NotRequired[list[str]]
    """Sentences about files that its engine would not find or could not open."""


def run(arguments: Arguments, streams: Streams) -> int:
    """Run the action that the command line names."""
    match arguments.action:
        case "new" | "import" as action:
            # Each makes profiles with modules that the other actions need not import.
            module = import_module(f"appliance.cli.verbs.profile_{action}")
            status: int = module.run(arguments, streams)
        case "lint":
            status = run_lint(arguments, streams)
        case "rm":
            status = run_removal(arguments, streams)
        case _:
            status = run_check(arguments, streams)
    return status


def run_check(arguments: Arguments, streams: Streams) -> int:
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


def run_lint(arguments: Arguments, streams: Streams) -> int:
    """Print traps, and options that programs lack; 0: none, 1: some profile has one, 78: some file is wrong."""
    check = check_profiles(arguments.targets)
    checked, report = check.profiles, lint_profiles(check.specs, check.builds())
    if arguments.json:
        streams.out.document(_lint_document(checked, report))
    else:
        _print_traps(checked, report, streams)
    if any(one.error for one in checked):
        return int(Exit.CONFIG)
    return int(Exit.OK if report.is_clean else Exit.FAILED)


def run_removal(arguments: Arguments, streams: Streams) -> int:
    """Remove the files, and name the profiles whose units are left."""
    if not arguments.targets:
        raise CliError("profile rm wants a NAME: appliance profile --help", Exit.USAGE)
    if os.geteuid() != 0:
        raise need_root(f"profile rm {' '.join(arguments.targets)}")
    settings = load_settings()
    paths = {name: profile_path(settings, name) for name in arguments.targets}
    rows = {row.name: row for row in read_status(places_of(arguments)).profiles}
    applied = [name for name in paths if name in rows]
    refusals = [why for name in applied if (why := removal_refusal(rows[name])) is not None]
    if refusals:
        raise CliError("\n".join(refusals), Exit.FAILED)
    remove_files(paths.values())
    if arguments.json:
        removed = [str(path) for path in paths.values()]
        streams.out.document(RemovedProfiles(removed=removed, still_applied=applied))
        return int(Exit.OK)
    for path in paths.values():
        streams.out.line(f"removed {path}")
    if applied:
        streams.out.line(f"{', '.join(applied)}: the unit goes with sudo appliance apply")
    return int(Exit.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Profile that was checked."""

    file: str
    spec: UnitSpec | None
    """Compiled profile; None: it has errors."""
    error: str = ""
    """Errors in complete lines; empty: none."""
    warnings: tuple[str, ...] = ()
    """Sentences about files that its engine would not find or could not open, and about traps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCheck:
    """Check of some profiles, with what they were checked against."""

    profiles: tuple[Checked, ...]
    installed: CompiledProfiles
    """Profiles of the box, also those that were not named."""
    layout: Layout
    settings: Settings

    @property
    def specs(self) -> list[UnitSpec]:
        """Return the profiles without errors."""
        return [one.spec for one in self.profiles if one.spec is not None]

    def builds(self) -> CurrentBuilds:
        """Return a reader of the builds of their engines."""
        return CurrentBuilds(str(self.settings.applied_dir / BUILDS))


def check_profiles(targets: Sequence[str]) -> ProfileCheck:
    """Check the profiles that `targets` name; all of the box for none.

    Raises:
        UnknownProfileError: one is not there.
    """
    settings = load_settings()
    layout = layout_of(settings, Systemctl().version())
    installed = renderable(load_specs(settings), layout)
    return ProfileCheck(
        profiles=tuple(_checked(targets, settings, installed, layout)),
        installed=installed,
        layout=layout,
        settings=settings,
    )


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
            ranks_of=read_adapter_ranks,
            follow=follow,
        )
    except ProfileError as error:
        return Checked(file=str(path), spec=None, error=str(error))
    wrong = problem(spec, layout)
    return Checked(file=str(path), spec=None if wrong else spec, error=wrong or "")


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
            CheckedProfile(
                file=c.file, ok=not c.error, error=c.error or None, warnings=list(c.warnings)
            )
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


def _lint_of(checked: Checked, report: LintReport) -> Lint | None:
    """Return the lint of a profile; None: its file is wrong."""
    if checked.spec is None:
        return None
    return report.lints[checked.spec.applied.source_path]


def _print_traps(checked: Sequence[Checked], report: LintReport, streams: Streams) -> None:
    for one in checked:
        lint = _lint_of(one, report)
        if lint is None:
            streams.err.line(one.error)
            continue
        for line in _lint_lines(one.file, lint, report, streams.out):
            streams.out.line(line)
        for option in _options_of(one, report):
            streams.out.line(f"  {option}")
    if not checked:
        streams.err.line("there is no profile to check")


def _options_of(checked: Checked, report: LintReport) -> list[str]:
    """Return the sentences about options of a profile that its program lacks, or that could not be compared."""
    path = "" if checked.spec is None else checked.spec.applied.source_path
    return [one.text for one in report.options.get(path, ())]


def _lint_lines(file: str, lint: Lint, report: LintReport, terminal: Terminal) -> Iterator[str]:
    count = len(lint.sprung)
    traps = {0: "no trap", 1: "1 trap"}.get(count, f"{count} traps")
    yield f"{file}: {traps}"
    for one in lint.sprung:
        yield from _trap_lines(one, terminal)
    if lint.allowed:
        yield f"  allowed: {joined(lint.allowed)}"
    if lint.unchecked:
        yield f"  {unchecked_sentence(lint.unchecked, report.look.problem)}"
    yield from (f"  {note}" for note in lint.notes)


def _trap_lines(one: SprungTrap, terminal: Terminal) -> Iterator[str]:
    trap = one.trap
    yield f"  {terminal.paint(trap.name, Style.YELLOW)}: {trap.statement}"
    yield f"    here: {one.detail}"
    yield f"    change {trap.keys[0]}: {trap.advice}"
    if not one.is_certain:
        yield f"    holds for {trap.builds.text}; the build here is not known"
    yield f"    source: {trap.source} (checked {trap.checked})"


def _lint_document(checked: Sequence[Checked], report: LintReport) -> LintDocument:
    return {
        "profiles": [_profile_row(one, report) for one in checked],
        "gpus": [_gpu_row(gpu) for gpu in report.look.hardware],
        "gpu_problem": report.look.problem or None,
    }


def _profile_row(one: Checked, report: LintReport) -> LintedProfile:
    found = _lint_of(one, report)
    lint = Lint() if found is None else found
    path = "" if one.spec is None else one.spec.applied.source_path
    return {
        "file": one.file,
        "ok": not one.error,
        "error": one.error or None,
        "build": known_version(report.builds.get(path)),
        "traps": [_trap_row(sprung) for sprung in lint.sprung],
        "allowed": [str(trap) for trap in lint.allowed],
        "unchecked": [str(trap) for trap in lint.unchecked],
        "notes": list(lint.notes),
        "options": _options_of(one, report),
    }


def _trap_row(one: SprungTrap) -> FoundTrap:
    trap = one.trap
    return {
        "trap": str(trap.name),
        "statement": trap.statement,
        "detail": one.detail,
        "keys": list(trap.keys),
        "advice": trap.advice,
        "source": trap.source,
        "checked": trap.checked,
        "builds": trap.builds.text,
        "certain": one.is_certain,
    }


def _gpu_row(gpu: GpuHardware) -> LintedGpu:
    return {
        "index": gpu.index,
        "name": gpu.name,
        "compute_capability": gpu.capability_text or None,
        "nvlinks": gpu.nvlinks,
    }
