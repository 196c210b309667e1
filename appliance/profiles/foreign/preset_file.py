"""Reader of presets of llama-server (``--models-preset``): each section is a model with its options.

By its docs/preset.md of November 2026: keys are options without dashes or names of ``LLAMA_ARG_``
variables, ``[*]`` holds for every model, comments begin a line with ``#`` or ``;``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from appliance.profiles.foreign.server_command import (
    MAX_CHARACTERS,
    Argument,
    Disposition,
    DispositionKind,
    ImportFaultError,
    ServerCommand,
    known,
    setting,
)

_SHARED: Final = "*"
_ROUTER: Final = "llama-server's router: a switch loads a model, and unloads what is in its way"
_OF_ROUTER: Final = frozenset(
    {"models-max", "models-autoload", "models-dir", "models-preset", "stop-timeout"}
)
_MOST_MODELS: Final = 256
_MOST_KEYS: Final = 512
"""Most keys of a section: llama-server has half as many options."""
_COMMENTS: Final = ("#", ";")


@dataclass(slots=True)
class _PresetSection:
    name: str
    line: int
    values: dict[str, str] = field(default_factory=dict)


def is_preset(text: str) -> bool:
    """Tell whether a text reads as presets: it has a section, and keys below it, and is no unit file."""
    names = {section.name for section in _sections(text)}
    return bool(names) and not names & {"Unit", "Service", "Install"}


def read_presets(text: str, directory: str | None) -> Iterator[ServerCommand]:
    """Yield the command that each section stands for.

    Args:
        text: The file.
        directory: Directory of the file, for relative paths; None: not known.

    Raises:
        ImportFaultError: the file is too long, has too many models, or a line is none of its kinds.
    """
    sections = _sections(text)
    shared = {
        k: v for section in sections if section.name == _SHARED for k, v in section.values.items()
    }
    models = [section for section in sections if section.name not in {_SHARED, ""}]
    if len(models) > _MOST_MODELS:
        raise ImportFaultError(f"has more than {_MOST_MODELS} models")
    for section in models:
        values = {**shared, **section.values}
        yield ServerCommand(
            origin=f"[{section.name}]",
            name=section.name,
            argv=(known("llama-server"), *_arguments(values)),
            directory=directory,
            served=(section.name,),
            on_request=True,
            is_preset=True,
            dispositions=tuple(_fates(values)),
        )


def _sections(text: str) -> list[_PresetSection]:
    if len(text) > MAX_CHARACTERS:
        raise ImportFaultError(f"has more than {MAX_CHARACTERS >> 10} KiB")
    sections = [_PresetSection(name="", line=0)]
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith(_COMMENTS):
            continue
        if line.startswith("["):
            name, closed, _ = line[1:].partition("]")
            if not closed:
                raise ImportFaultError(f"line {number}: a section's bracket is not closed")
            sections.append(_PresetSection(name=name.strip(), line=number))
            continue
        key, equals, value = line.partition("=")
        if not equals and not key.replace("-", "").replace("_", "").isalnum():
            raise ImportFaultError(f"line {number}: is neither a section nor a key with a value")
        if len(sections[-1].values) >= _MOST_KEYS:
            raise ImportFaultError(f"line {number}: the section has more than {_MOST_KEYS} keys")
        sections[-1].values[key.strip()] = _without_comment(value.strip())
    return sections[1:] if not sections[0].values.keys() - {"version"} else sections


def _without_comment(value: str) -> str:
    """Return a value without the comment that follows it after a blank."""
    for mark in _COMMENTS:
        value = value.partition(f" {mark}")[0].rstrip()
    quotes = value[:1] + value[-1:]
    return value[1:-1] if len(value) > 1 and quotes in {'""', "''"} else value


def _arguments(values: Mapping[str, str]) -> Iterator[Argument]:
    """Yield each key as a long option and its value; drafting knows which options are switches."""
    for key, value in values.items():
        if key in _OF_ROUTER or key == "load-on-startup":
            continue
        name = key if key.startswith("LLAMA_") else key.lstrip("-").replace("_", "-")
        yield known(f"{name}={value}" if name.startswith("LLAMA_") else f"--{name}={value}")


def _fates(values: Mapping[str, str]) -> Iterator[Disposition]:
    for key, value in values.items():
        if key == "load-on-startup":
            reason = "appliance switch NAME commits a profile, which a boot then starts"
            yield setting(f"{key} = {value}", DispositionKind.CHANGED, reason)
        elif key in _OF_ROUTER:
            yield setting(f"{key} = {value}", DispositionKind.CHANGED, _ROUTER)
