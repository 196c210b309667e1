"""Verb `appliance profile lint`: traps of profiles, each with what to change, its source and its date."""

from collections.abc import Iterator, Sequence

from appliance.cli.arguments import Arguments
from appliance.cli.checked_profiles import Checked, check_profiles
from appliance.cli.terminal import Streams, Style, Terminal
from appliance.install.profile_linting import LintReport, lint_profiles
from appliance.model.gpus import GpuHardware
from appliance.model.wording import joined
from appliance.profiles.linting.lint import (
    Lint,
    SprungTrap,
    known_version,
    unchecked_sentence,
)
from appliance.wire.control import Exit


def run(arguments: Arguments, streams: Streams) -> int:
    """Print traps, and options that programs lack; 0: none, 1: some profile has one, 78: some file is wrong."""
    check = check_profiles(arguments.targets)
    checked, report = check.profiles, lint_profiles(check.specs, check.builds())
    if arguments.json:
        streams.out.document(_document(checked, report))
    else:
        _print(checked, report, streams)
    if any(one.error for one in checked):
        return int(Exit.CONFIG)
    return int(Exit.OK if report.is_clean else Exit.FAILED)


def _lint_of(checked: Checked, report: LintReport) -> Lint | None:
    """Return the lint of a profile; None: its file is wrong."""
    if checked.spec is None:
        return None
    return report.lints[checked.spec.applied.source_path]


def _print(checked: Sequence[Checked], report: LintReport, streams: Streams) -> None:
    for one in checked:
        lint = _lint_of(one, report)
        if lint is None:
            streams.err.line(one.error)
            continue
        for line in _lines(one.file, lint, report, streams.out):
            streams.out.line(line)
        for option in _options_of(one, report):
            streams.out.line(f"  {option}")
    if not checked:
        streams.err.line("there is no profile to check")


def _options_of(checked: Checked, report: LintReport) -> list[str]:
    """Return the sentences about options of a profile that its program lacks, or that nobody could compare."""
    path = "" if checked.spec is None else checked.spec.applied.source_path
    return [one.text for one in report.options.get(path, ())]


def _lines(file: str, lint: Lint, report: LintReport, terminal: Terminal) -> Iterator[str]:
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


def _document(checked: Sequence[Checked], report: LintReport) -> dict[str, object]:
    return {
        "profiles": [_profile_row(one, report) for one in checked],
        "gpus": [_gpu_row(gpu) for gpu in report.look.hardware],
        "gpu_problem": report.look.problem or None,
    }


def _profile_row(one: Checked, report: LintReport) -> dict[str, object]:
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


def _trap_row(one: SprungTrap) -> dict[str, object]:
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


def _gpu_row(gpu: GpuHardware) -> dict[str, object]:
    return {
        "index": gpu.index,
        "name": gpu.name,
        "compute_capability": gpu.capability_text or None,
        "nvlinks": gpu.nvlinks,
    }
