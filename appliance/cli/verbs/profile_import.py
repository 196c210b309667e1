"""Verb `appliance profile import`: configurations of other programs as profiles; nothing of them is run.

Without ``--output`` it changes nothing: the profiles go to standard output, what became of each option to
standard error.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NotRequired, TypedDict

from appliance.cli.arguments import Arguments
from appliance.cli.failures import CliError
from appliance.cli.profile_making import host_facts, written
from appliance.cli.terminal import Streams, Terminal
from appliance.model.wording import printable
from appliance.profiles.foreign.profile_draft import (
    HostFacts,
    OldServer,
    old_server_warnings,
    port_of,
    program_of,
)
from appliance.profiles.foreign.server_command import (
    Disposition,
    DispositionKind,
    ImportFaultError,
    PartKind,
)
from appliance.profiles.foreign.sources import ImportSource, drafts_of
from appliance.settings.loader import load_settings
from appliance.system.kernel.tcp_listeners import port_holder
from appliance.system.profile_files.drafts import DraftFile, checked_file, ledger_line
from appliance.system.profile_files.loading import SUFFIX
from appliance.system.systemd.systemctl import Systemctl
from appliance.system.systemd.unit_files import lacks_file, unit_file_text
from appliance.system.toml.file import MAX_BYTES, FaultyFileError, decoded_text, read_content
from appliance.system.yaml_documents import YamlFaultError, read_yaml
from appliance.wire.control import Exit

_STDIN: Final = "-"
_UNIT: Final = ".service"


class ImportedProfile(TypedDict):
    """Profile that a configuration gives."""

    name: str
    source: str
    file: str | None
    """Path of the file that was written; None: none was."""
    text: str
    """Text of the profile."""
    parts: list[Disposition]
    warnings: NotRequired[list[str]]
    """Sentences about what would keep it from starting here."""


class ImportDocument(TypedDict):
    """Outcome of an import."""

    profiles: list[ImportedProfile]
    faults: list[str]
    """Sentences about what could not be imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """Outcome of an import, over all sources."""

    files: tuple[DraftFile, ...]
    warnings: Mapping[str, tuple[str, ...]]
    """Sentences about what would keep a profile from starting here, by its name."""
    faults: tuple[str, ...]
    """Sentences about what could not be imported."""


def run(arguments: Arguments, streams: Streams) -> int:
    """Read the sources, and print or write the profiles that they make."""
    if not arguments.targets:
        raise CliError("nothing to import: name a file, a unit or - for standard input", Exit.USAGE)
    settings = load_settings()
    output = None if arguments.output is None else Path(arguments.output)
    report = _imported(arguments.targets, host_facts(settings, output))
    texts = {file.draft.name: file.text for file in report.files}
    paths = {} if output is None else written(texts, output, force=arguments.force)
    if arguments.json:
        streams.out.document(_document(report, paths))
    else:
        _print(report, paths, streams)
    for fault in report.faults:
        streams.err.line(fault)
    return int(Exit.CONFIG if report.faults else Exit.OK)


def _imported(targets: Sequence[str], host: HostFacts) -> ImportReport:
    files: list[DraftFile] = []
    warnings: dict[str, tuple[str, ...]] = {}
    faults: list[str] = []
    for target in targets:
        name = printable(target)
        try:
            found = drafts_of(_source(target), host, _yaml)
        except (FaultyFileError, ImportFaultError) as error:
            faults.append(f"{name}: {error}")
            continue
        for draft in found.drafts:
            file = checked_file(draft)
            faults += (f"{name}: {draft.name}: {fault.text}" for fault in file.faults)
            if not file.faults:
                files.append(file)
                warnings[draft.name] = _warnings(target, file)
                host = host.with_profile(file.draft)
        for refusal in found.refusals:
            place = f"{refusal.origin}: " if refusal.origin else ""
            faults.append(printable(f"{name}: {place}{refusal.reason}"))
        if not found.drafts and not found.refusals:
            faults.append(f"{name}: starts no llama-server, vLLM, SGLang or ollama")
    return ImportReport(files=tuple(files), warnings=warnings, faults=tuple(faults))


def _warnings(target: str, file: DraftFile) -> tuple[str, ...]:
    """Return what of the old server is in the way of a profile, or missing."""
    draft, systemctl, unit = file.draft, Systemctl(), Path(target).name
    port, program = port_of(draft), program_of(draft)
    is_unit = unit.endswith(_UNIT) and not lacks_file(unit)
    old = OldServer(
        unit=unit if is_unit else "",
        is_active=is_unit and systemctl.is_active(unit),
        is_enabled=is_unit and systemctl.is_enabled(unit),
        has_program=not program or os.access(program, os.F_OK),
        port_holder=None if port is None else port_holder(port),
    )
    return tuple(old_server_warnings(draft, old))


def _source(target: str) -> ImportSource:
    """Return what a word of the command line names. Raises `FaultyFileError`."""
    if target == _STDIN:
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
        return ImportSource(
            name="standard input", text=decoded_text(content), directory=str(Path.cwd())
        )
    path = Path(target)
    if target.endswith(_UNIT) and "/" not in target and not path.exists():
        text = unit_file_text(target)
        if text is None:
            raise ImportFaultError("there is no such file, and systemd has no such unit")
        return ImportSource(name=target, text=text, directory=None)
    text = decoded_text(read_content(path))
    return ImportSource(name=path.name, text=text, directory=str(path.absolute().parent))


def _yaml(text: str) -> object:
    try:
        return read_yaml(text)
    except YamlFaultError as error:
        raise ImportFaultError(str(error)) from error


def _print(report: ImportReport, paths: dict[str, Path], streams: Streams) -> None:
    for place, file in enumerate(report.files):
        path = paths.get(file.draft.name)
        if path is None:
            _print_profile(file, streams.out, is_first=place == 0)
            # What was left out follows its profile also where both streams are one pipe.
            streams.out.stream.flush()
        for line in _summary(file, path):
            streams.err.line(line)
        for warning in report.warnings[file.draft.name]:
            streams.err.line(f"  {warning}")


def _print_profile(file: DraftFile, out: Terminal, *, is_first: bool) -> None:
    if not is_first:
        out.line("")
    out.line(f"# {file.draft.name}{SUFFIX}")
    out.content(file.text)


def _summary(file: DraftFile, path: Path | None) -> Iterator[str]:
    """Yield the lines about one profile: how much of it was kept, and what was not."""
    draft = file.draft
    options = [d for d in draft.dispositions if d.part is not PartKind.SETTING]
    kept = sum(d.outcome is not DispositionKind.DROPPED for d in options)
    place = f"{draft.name}{SUFFIX}" if path is None else str(path)
    yield f"{place}: {kept} of {len(options)} options and variables kept"
    for disposition in draft.of(DispositionKind.DROPPED):
        yield f"  dropped: {ledger_line(disposition)}"


def _document(report: ImportReport, paths: dict[str, Path]) -> ImportDocument:
    return {
        "profiles": [
            {
                "name": file.draft.name,
                "source": file.draft.origin,
                "file": str(path) if (path := paths.get(file.draft.name)) else None,
                "text": file.text,
                "parts": list(file.draft.dispositions),
                "warnings": list(report.warnings[file.draft.name]),
            }
            for file in report.files
        ],
        "faults": list(report.faults),
    }
