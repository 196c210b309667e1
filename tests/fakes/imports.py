"""Imports of configurations for tests: a made-up machine, and the drafts of a text."""

from appliance.profiles.foreign.profile_draft import HostFacts, ProfileDraft
from appliance.profiles.foreign.server_command import (
    Disposition,
    DispositionKind,
    ImportFaultError,
    PartKind,
)
from appliance.profiles.foreign.sources import Drafts, ImportSource, drafts_of
from appliance.system.profile_files.drafts import DraftFile, checked_file
from appliance.system.yaml_documents import YamlFaultError, read_yaml

HOMES = {"": "/home/ana", "root": "/root", "llama": "/home/llama"}
PROGRAMS = {"vllm": "/opt/vllm/bin/vllm"}
HOST = HostFacts(find_program=PROGRAMS.get, home_of=HOMES.get, taken_ports={8010: "the gateway"})
"""Machine with one engine in PATH, two users, and a gateway."""


def read_or_fault(text: str) -> object:
    """Return YAML as the import reads it. Raises `ImportFaultError`."""
    try:
        return read_yaml(text)
    except YamlFaultError as error:
        raise ImportFaultError(str(error)) from error


def imported(text: str, name: str = "command.txt", directory: str | None = "/srv/box") -> Drafts:
    """Return the drafts of a text."""
    source = ImportSource(name=name, text=text, directory=directory)
    return drafts_of(source, HOST, read_or_fault)


def one_draft(text: str, name: str = "command.txt") -> ProfileDraft:
    """Return the draft of a text that has one server."""
    drafts = imported(text, name)
    assert not drafts.refusals, drafts.refusals
    (draft,) = drafts.drafts
    return draft


def checked(text: str, name: str = "command.txt") -> DraftFile:
    """Return the valid profile of a text that has one server."""
    file = checked_file(one_draft(text, name))
    assert not file.faults, file.faults
    return file


def values(draft: ProfileDraft) -> dict[str, object]:
    """Return the keys of a draft, those of tables as ``table.key``."""
    return {f"{k.table}.{k.key}" if k.table else k.key: k.value for k in draft.keys}


def extra_words(draft: ProfileDraft) -> list[str]:
    """Return the extra arguments of a draft."""
    return [word for argument in draft.extra_args for word in argument.words]


def fates(
    draft: ProfileDraft, outcome: DispositionKind, part: PartKind | None = None
) -> dict[str, str]:
    """Return the reasons of the parts that had one outcome, by their texts."""
    return {d.text: d.reason or "" for d in draft.of(outcome) if part in {None, d.part}}


def is_counted(disposition: Disposition) -> bool:
    """Tell whether a part is one of the engine's: an option or a variable."""
    return disposition.part is not PartKind.SETTING
