"""Kinds of configurations, recognised by a file's name and text, and the drafts that each one gives."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from appliance.model.plain_text import abridged
from appliance.profiles.foreign.containers import read_compose
from appliance.profiles.foreign.launchers import OLLAMA, servers_of
from appliance.profiles.foreign.model_lists import is_preset, read_presets, read_swap
from appliance.profiles.foreign.profile_draft import HostFacts, ProfileDraft
from appliance.profiles.foreign.profile_drafting import draft_of, ollama_draft
from appliance.profiles.foreign.server_command import (
    MAX_CHARACTERS,
    ImportFaultError,
    ServerCommand,
)
from appliance.profiles.foreign.service_unit import read_unit
from appliance.profiles.foreign.shell import read_script

_YAML_KEY: Final = re.compile(r"(?:services|models|macros|x-[\w-]+):", re.ASCII)
_PRESET: Final = re.compile(r"\s*(?:\[[^\]]+\]\s*\Z|version\s*=)")
"""Pattern of the first line of presets."""
_UNIT_SUFFIXES: Final = (".service", ".container")
_MOST_PROFILES: Final = 256
_MOST_NOTES: Final = 10_000
"""Most parts of all commands; a setting of the whole file is a part of each of them."""


class SourceKind(StrEnum):
    """Kind of a configuration."""

    YAML = "YAML"
    PRESETS = "presets"
    UNIT = "systemd unit"
    SCRIPT = "shell text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """Text to import."""

    name: str
    """Name for messages and comments: of the file or unit; ``-`` for standard input."""
    text: str
    directory: str | None
    """Absolute directory for relative paths; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRefusal:
    """Part of a source that no profile is made from, and why."""

    origin: str
    reason: str

    def __post_init__(self) -> None:
        """Cut both: the name of the part may be as long as its source."""
        object.__setattr__(self, "origin", abridged(self.origin))
        object.__setattr__(self, "reason", abridged(self.reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """Drafts of a source, and its parts that give none."""

    drafts: tuple[ProfileDraft, ...]
    refusals: tuple[ImportRefusal, ...]
    others: int
    """Number of commands that start no model server."""


ReadYaml = Callable[[str], object]
"""Function that reads YAML with texts as its scalars. Raises `ImportFaultError`."""


def kind_of(name: str, text: str) -> SourceKind:
    """Return the kind of a source; a text that is nothing else is read as shell text."""
    lower = name.lower()
    lines = [line for line in text.splitlines() if line.strip()]
    first = next((line for line in lines if not line.lstrip().startswith(("#", ";"))), "")
    if text.startswith("#!") or lower.endswith((".sh", ".bash")):
        return SourceKind.SCRIPT
    if lower.endswith(_UNIT_SUFFIXES) or any(line.strip() == "[Service]" for line in lines):
        return SourceKind.UNIT
    if lower.endswith((".yaml", ".yml")) or any(map(_YAML_KEY.match, lines)):
        return SourceKind.YAML
    if lower.endswith(".ini") or (_PRESET.match(first) and is_preset(text)):
        return SourceKind.PRESETS
    return SourceKind.SCRIPT


def drafts_of(source: ImportSource, host: HostFacts, read_yaml: ReadYaml) -> Drafts:
    """Return the drafts of every model server in a source.

    Ports and names are those that no other draft and no profile of `host` has.

    Raises:
        ImportFaultError: the source as a whole cannot be read.
    """
    if len(source.text) > MAX_CHARACTERS:
        raise ImportFaultError(
            f"has more than {MAX_CHARACTERS >> 10} KiB: this is no configuration"
        )
    found: list[ProfileDraft] = []
    refusals: list[ImportRefusal] = []
    others = notes = 0
    for command in _commands(source, read_yaml):
        try:
            drafts = [
                (ollama_draft if server.engine == OLLAMA else draft_of)(server, source.name, host)
                for server in servers_of(command)
            ]
        except ImportFaultError as error:
            refusals.append(ImportRefusal(origin=command.origin, reason=str(error)))
            drafts = []
        else:
            others += not drafts
        for draft in drafts:
            host = host.with_profile(draft)
        found += drafts
        notes += sum(len(draft.dispositions) for draft in drafts)
        if notes > _MOST_NOTES:
            raise ImportFaultError(
                f"has more than {_MOST_NOTES} options and settings, each counted for every profile"
            )
        if len(found) + len(refusals) > _MOST_PROFILES:
            raise ImportFaultError(f"starts more than {_MOST_PROFILES} model servers")
    return Drafts(drafts=tuple(found), refusals=tuple(refusals), others=others)


def _commands(source: ImportSource, read_yaml: ReadYaml) -> Iterator[ServerCommand]:
    match kind_of(source.name, source.text):
        case SourceKind.YAML:
            yield from _of_yaml(read_yaml(source.text), source.directory)
        case SourceKind.PRESETS:
            yield from read_presets(source.text, source.directory)
        case SourceKind.UNIT:
            yield from read_unit(source.text, posixpath.basename(source.name))
        case _:
            base = ServerCommand(origin="", directory=source.directory)
            yield from read_script(source.text, base)


def _of_yaml(document: object, directory: str | None) -> Iterator[ServerCommand]:
    if isinstance(document, Mapping) and "services" in document:
        yield from read_compose(document, directory)
    elif isinstance(document, Mapping) and "models" in document:
        yield from read_swap(document, directory)
    else:
        raise ImportFaultError(
            "has neither services, as a compose file, nor models, as llama-swap's configuration"
        )
