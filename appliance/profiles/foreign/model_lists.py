"""Readers of files that list models: llama-swap's configuration and llama-server's presets.

llama-swap's (config.example.yaml of November 2026) has a command for each model, with macros and a port to
replace. Presets (``--models-preset``, docs/preset.md of November 2026) have a section for each: keys are options
without dashes or names of ``LLAMA_ARG_`` variables, ``[*]`` holds for every model, comments begin a line with
``#`` or ``;``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from appliance.profiles.foreign.option_reading import json_word
from appliance.profiles.foreign.server_command import (
    MAX_CHARACTERS,
    Argument,
    Disposition,
    DispositionKind,
    ImportFaultError,
    ServerCommand,
    setting,
)
from appliance.profiles.foreign.shell import read_script

_FIRST_PORT: Final = 5800
_MOST_PORT: Final = 65_535
_MOST_ROUNDS: Final = 16
"""Depth to which macros may stand for macros."""
_MOST_SWAP_MODELS: Final = 256
_MOST_CHARACTERS: Final = 4 * MAX_CHARACTERS
"""Most text that the commands of all models are together, with macros replaced."""
_MACRO: Final = re.compile(r"\$\{([A-Za-z0-9_-]{1,64})\}", re.ASCII)
_HIDDEN_DOLLAR: Final = "\ufdd0"
"""Stands for a dollar sign that no shell reads: llama-swap starts commands without one. No text has this
character (Unicode reserves it for such use)."""
_SWITCHES: Final = "the profiles' claims decide which models run together"
_IDLE: Final = "a model serves until another takes its place: nothing unloads it"
_STOPS: Final = "a stop empties the unit's control group"
_LIST: Final = "the gateway's list of models has the served names of every profile"
_TIMES: Final = "a start has a deadline on progress: no_progress under [deadlines]"
_FATES: Final[Mapping[str, tuple[DispositionKind, str]]] = {
    "ttl": (DispositionKind.DROPPED, _IDLE),
    "globalTTL": (DispositionKind.DROPPED, _IDLE),
    "cmdStop": (DispositionKind.CHANGED, _STOPS),
    "groups": (DispositionKind.CHANGED, _SWITCHES),
    "matrix": (DispositionKind.CHANGED, _SWITCHES),
    "unlisted": (DispositionKind.DROPPED, _LIST),
    "includeAliasesInList": (DispositionKind.CHANGED, _LIST),
    "metadata": (DispositionKind.DROPPED, _LIST),
    "healthCheckTimeout": (DispositionKind.CHANGED, _TIMES),
    "timeouts": (DispositionKind.CHANGED, _TIMES),
    "concurrencyLimit": (
        DispositionKind.DROPPED,
        "parallel says how many requests the engine serves at once",
    ),
    "apiKeys": (DispositionKind.CHANGED, "the gateway has its own keys: appliance key add NAME"),
    "hooks": (
        DispositionKind.CHANGED,
        "appliance switch NAME commits a profile, which a boot then starts",
    ),
    "peers": (DispositionKind.DROPPED, "another machine's models are not this box's"),
    "sendLoadingState": (
        DispositionKind.DROPPED,
        "the gateway keeps a waiting request alive by comments",
    ),
}
_OF_ITSELF: Final = "it is about llama-swap itself"
_READ: Final = frozenset(
    {
        *("cmd", "name", "description", "env", "proxy", "checkEndpoint", "useModelName"),
        *("filters", "aliases", "macros", "models", "startPort"),
    }
)


def read_swap(document: Mapping[str, object], directory: str | None) -> Iterator[ServerCommand]:
    """Yield the commands of every model.

    Args:
        document: The file; all scalars are text.
        directory: Directory of the file, for relative paths; None: not known.

    Raises:
        ImportFaultError: the file is no configuration of llama-swap, or its macros make too much text.
    """
    models = document.get("models")
    if not isinstance(models, Mapping):
        raise ImportFaultError("has no table of models")
    if len(models) > _MOST_SWAP_MODELS:
        raise ImportFaultError(f"has more than {_MOST_SWAP_MODELS} models")
    port = _port(document.get("startPort"))
    made = 0
    shared = tuple(_swap_fates(document))
    for name, model in models.items():
        if not isinstance(model, Mapping):
            raise ImportFaultError(f"model {name}: is no table")
        macros = {**_macros(document), **_macros(model), "MODEL_ID": str(name), "PORT": str(port)}
        reader = _Model(str(name), model, macros, directory)
        text = reader.command_text()
        made += len(text)
        if made > _MOST_CHARACTERS:
            raise ImportFaultError(f"its macros make more than {_MOST_CHARACTERS >> 10} KiB")
        yield from reader.commands(text, shared)
        port += 1


class _Model:
    def __init__(
        self,
        name: str,
        table: Mapping[str, object],
        macros: Mapping[str, str],
        directory: str | None,
    ) -> None:
        self._name = name
        self._table = table
        self._macros = macros
        self._directory = directory

    def command_text(self) -> str:
        text = _one_line(self._text("cmd"))
        if not text:
            raise ImportFaultError(f"model {self._name}: has no cmd")
        return text

    def commands(self, text: str, shared: Sequence[Disposition]) -> Iterator[ServerCommand]:
        base = ServerCommand(
            origin=f"model {self._name}",
            name=self._name,
            description=self._text("description") or self._text("name"),
            environment=dict(self._environment()),
            directory=self._directory,
            served=tuple(dict.fromkeys([self._name, *self._aliases()])),
            set_parameters=self._set_parameters(),
            strip_parameters=self._strip_parameters(),
            on_request=True,
            health_path=self._health_path(),
            dispositions=(*shared, *_swap_fates(self._table)),
        )
        for command in read_script(text.replace("$", _HIDDEN_DOLLAR), base):
            argv = tuple(_revealed(word) for word in command.argv)
            yield replace(command, argv=argv)

    def _text(self, key: str) -> str:
        value = self._table.get(key)
        return self._replaced(value) if isinstance(value, str) else ""

    def _replaced(self, text: str) -> str:
        """Return a text with macros in place of their names, macros in macros too."""
        for _ in range(_MOST_ROUNDS):
            used = [self._macros.get(name) for name in _MACRO.findall(text)]
            if not any(value is not None for value in used):
                return text
            if len(text) + sum(len(value) for value in used if value is not None) > MAX_CHARACTERS:
                raise ImportFaultError(
                    f"model {self._name}: its macros make more than {MAX_CHARACTERS >> 10} KiB"
                )
            text = _MACRO.sub(lambda match: self._macros.get(match[1], match[0]), text)
        raise ImportFaultError(f"model {self._name}: macros stand for each other without end")

    def _environment(self) -> Iterator[tuple[str, Argument]]:
        for row in _texts(self._table.get("env")):
            name, _, value = self._replaced(row).partition("=")
            yield name, _revealed(Argument(text=value))

    def _aliases(self) -> Iterator[str]:
        given = self._table.get("aliases")
        for alias in given if isinstance(given, list) else ():
            text = alias.get("id") if isinstance(alias, Mapping) else alias
            if isinstance(text, str):
                yield self._replaced(text)
        if isinstance(name := self._table.get("useModelName"), str):
            yield self._replaced(name)

    def _filters(self) -> Mapping[str, object]:
        filters = self._table.get("filters")
        return filters if isinstance(filters, Mapping) else {}

    def _set_parameters(self) -> Mapping[str, object]:
        given = self._filters().get("setParams")
        if not isinstance(given, Mapping):
            return {}
        return {str(name): self._typed(value) for name, value in given.items() if name != "model"}

    def _typed(self, value: object) -> object:
        """Return a parameter as JSON would have it: a number where the file has one without quotes."""
        if isinstance(value, Mapping):
            return {str(name): self._typed(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._typed(inner) for inner in value]
        if not isinstance(value, str):
            return value
        text = self._replaced(value)
        if type(value) is str and "${" not in value:
            return text
        return json_word(text)

    def _strip_parameters(self) -> tuple[str, ...]:
        filters = self._filters()
        text = filters.get("stripParams", filters.get("strip_params"))
        names = text.split(",") if isinstance(text, str) else ()
        return tuple(name for n in names if (name := n.strip()) and name != "model")

    def _health_path(self) -> str:
        path = self._text("checkEndpoint")
        return path if path.startswith("/") else ""


def _one_line(text: str) -> str:
    """Return a command without its lines of comments; the end of a line is a blank."""
    lines = (line.strip() for line in text.splitlines())
    kept = (line.removesuffix("\\") for line in lines if not line.startswith("#"))
    return " ".join(kept).strip()


def _revealed(word: Argument) -> Argument:
    """Return a word as llama-swap would pass it; a macro that is left has no value."""
    text = word.text.replace(_HIDDEN_DOLLAR, "$")
    if "${" in text:
        note = f"{text}: the file has no such macro"
        if "${env." in text:
            note = f"{text}: it is taken from outside the file"
        return replace(word, text=text, is_known=False, note=note)
    return replace(word, text=text)


def _macros(table: Mapping[str, object]) -> Mapping[str, str]:
    macros = table.get("macros")
    if not isinstance(macros, Mapping):
        return {}
    return {str(name): value.strip() for name, value in macros.items() if isinstance(value, str)}


def _port(value: object) -> int:
    text = value if isinstance(value, str) else ""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < len("65535 ") else 0
    return number if 0 < number <= _MOST_PORT else _FIRST_PORT


def _texts(value: object) -> Iterator[str]:
    yield from (item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _swap_fates(table: Mapping[str, object]) -> Iterator[Disposition]:
    """Yield what becomes of the keys that are not read."""
    for key in table:
        if key not in _READ:
            outcome, reason = _FATES.get(str(key), (DispositionKind.DROPPED, _OF_ITSELF))
            yield setting(str(key), outcome, reason)
    filters = table.get("filters")
    if isinstance(filters, Mapping) and "setParamsByID" in filters:
        reason = "write a profile for each: one profile has one set of parameters"
        yield setting("filters.setParamsByID", DispositionKind.DROPPED, reason)


_SHARED: Final = "*"
_ROUTER: Final = "llama-server's router: a switch loads a model, and unloads what is in its way"
_OF_ROUTER: Final = frozenset(
    {"models-max", "models-autoload", "models-dir", "models-preset", "stop-timeout"}
)
_MOST_PRESETS: Final = 256
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
    if len(models) > _MOST_PRESETS:
        raise ImportFaultError(f"has more than {_MOST_PRESETS} models")
    for section in models:
        values = {**shared, **section.values}
        yield ServerCommand(
            origin=f"[{section.name}]",
            name=section.name,
            argv=(Argument(text="llama-server"), *_arguments(values)),
            directory=directory,
            served=(section.name,),
            on_request=True,
            is_preset=True,
            dispositions=tuple(_preset_fates(values)),
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
        yield Argument(text=f"{name}={value}" if name.startswith("LLAMA_") else f"--{name}={value}")


def _preset_fates(values: Mapping[str, str]) -> Iterator[Disposition]:
    for key, value in values.items():
        if key == "load-on-startup":
            reason = "appliance switch NAME commits a profile, which a boot then starts"
            yield setting(f"{key} = {value}", DispositionKind.CHANGED, reason)
        elif key in _OF_ROUTER:
            yield setting(f"{key} = {value}", DispositionKind.CHANGED, _ROUTER)
