"""Values of a profile that have a form of their own, such as GPUs, thinking and request parameters."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Final, Literal

from appliance.model.value_types import (
    Check,
    Length,
    TypeName,
    ValueParser,
    WrongValueError,
    has_control_character,
    is_index,
    is_word,
    no_doubles,
    one_line,
    shown,
)

_MAX_GPU: Final = 63
_MAX_LAYER: Final = 9999
_MAX_WORDS: Final = 8
_MAX_JSON: Final = 8192
_MAX_THINKING_TOKENS: Final = 1 << 24
_PARAMETER: Final = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
_MAX_PARAMETERS: Final = 64
_ROUTED: Final = ("model", "stream")
"""Request parameters on which the gateway itself relies, so that no profile may set or strip
them."""

Gpus = Literal["all"] | tuple[int, ...]
"""GPUs that a backend sees: all of them, or those with these indexes; empty: the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """Types of the key and value caches, by the engine's own names."""

    k: str
    v: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Setting whether the model thinks before it answers, decided on the server."""

    on: bool
    budget_tokens: int | None = None
    """Tokens after which the server ends a thought; None: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One key of [unit]: systemd's section, key and values. Several values repeat the key."""

    section: str
    key: str
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return ``Section.Key``."""
        return f"{self.section}.{self.key}"


def _gpus(value: object) -> Gpus:
    if value == "all":
        return "all"
    if not isinstance(value, list) or not all(is_index(item, _MAX_GPU) for item in value):
        raise WrongValueError(
            f'{shown(value)} is neither "all" nor a list of GPU indexes such as [0, 1]'
        )
    if len(set(value)) != len(value):
        raise WrongValueError("names a GPU twice")
    return tuple(sorted(value))


def _kv(value: object) -> KvCache:
    pair = value if isinstance(value, dict) else {"k": value, "v": value}
    words = {side: word for side, word in pair.items() if isinstance(word, str) and is_word(word)}
    if set(pair) != {"k", "v"} or words.keys() != pair.keys():
        raise WrongValueError('is neither a type such as "q8_0" nor { k = "…", v = "…" }')
    return KvCache(**words)


def _thinking(value: object) -> Thinking:
    if value in ("off", "on"):
        return Thinking(on=value == "on")
    tokens = value.get("budget") if isinstance(value, dict) and len(value) == 1 else None
    if is_index(tokens, _MAX_THINKING_TOKENS) and tokens:
        return Thinking(on=True, budget_tokens=tokens)
    raise WrongValueError('is neither "off", "on" nor { budget = 2048 }')


def _layers(value: object) -> Literal["all"] | int:
    if value == "all":
        return "all"
    if isinstance(value, int) and is_index(value, _MAX_LAYER):
        return value
    raise WrongValueError(f'{shown(value)} is neither "all" nor a number of layers')


def _word_or_words(value: object) -> tuple[str, ...]:
    """Parse a word, or a list of different ones."""
    items = value if isinstance(value, list) else [value]
    words = tuple(item for item in items if isinstance(item, str) and is_word(item))
    if not 0 < len(words) <= _MAX_WORDS or len(words) != len(items):
        raise WrongValueError(f"{shown(value)} is neither a word nor a list of words")
    return tuple(no_doubles(words))


def _draft_model(path: str) -> str:
    """Return the path of a model, or ``hf:owner/name``."""
    if not path.startswith(("/", "hf:")) or ".." in path.split("/"):
        raise WrongValueError(f"{shown(path)} is neither an absolute path nor hf:owner/name")
    return path


def _no_separator(path: str) -> str:
    """Return a path that engines read as one in ``name=path``."""
    if set(path) & {"=", ","}:
        raise WrongValueError(f"{shown(path)} has a = or a comma, at which engines split it")
    return path


def _parameter(path: str) -> str:
    if not all(re.fullmatch(_PARAMETER, name) for name in path.split(".")):
        raise WrongValueError(
            f"{shown(path)} is not the name of a request parameter, such as temperature"
        )
    if path.partition(".")[0] in _ROUTED:
        raise WrongValueError(f"{shown(path)} is what the gateway itself relies on: leave it out")
    return path


def _parameters(value: object) -> Mapping[str, object]:
    """Parse [gateway] set: inner tables become paths, ``chat_template_kwargs.enable_thinking``."""
    if not isinstance(value, dict):
        raise WrongValueError("is not a table of request parameters")
    found = dict(_paths_of(value))
    if len(found) > _MAX_PARAMETERS:
        raise WrongValueError(f"has more than {_MAX_PARAMETERS} parameters")
    return found


def _paths_of(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        path = _parameter(prefix + name)
        if isinstance(value, dict) and value:
            yield from _paths_of(value, f"{path}.")
        elif _is_json(value):
            yield path, value
        else:
            raise WrongValueError(f"{path} has a value that JSON cannot hold: {shown(value)}")


def _is_json(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_json(item) for item in value)
    if isinstance(value, dict):
        return all(_is_json(item) for item in value.values())
    return isinstance(value, str | bool | int) or (isinstance(value, float) and isfinite(value))


def _json_table(value: object) -> Mapping[str, object]:
    """Parse a table that an engine is given as JSON."""
    if not isinstance(value, dict):
        raise WrongValueError("is not a table")
    for name, item in value.items():
        if not _is_json(item):
            raise WrongValueError(f"{shown(name)} has a value that JSON cannot hold: {shown(item)}")
    if len(json.dumps(value)) > _MAX_JSON:
        raise WrongValueError(f"is longer than {_MAX_JSON} characters as JSON")
    return value


def _overrides(value: object) -> tuple[Override, ...]:
    """Parse [unit]: ``"Service.Nice" = 5``, ``Service.Nice = 5`` or a table ``[unit.Service]``."""
    if not isinstance(value, dict):
        raise WrongValueError("is not a table of Section.Key = value")
    found: list[Override] = []
    for name, given in value.items():
        section, dot, key = name.partition(".")
        if dot:
            found.append(_override(section, key, given))
        elif isinstance(given, dict):
            found += (_override(section, key, v) for key, v in given.items())
        else:
            raise WrongValueError(
                f"{shown(name)} is not written as Section.Key, such as Service.Nice"
            )
    if len({o.name for o in found}) != len(found):
        raise WrongValueError("gives a key twice: once dotted and once in quotes or in a table")
    return tuple(found)


def _override(section: str, key: str, value: object) -> Override:
    if has_control_character(section + key):
        raise WrongValueError(f"{shown(f'{section}.{key}')} contains a control character")
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(i, str | int | float) for i in items):
        raise WrongValueError(f"{section}.{key} is neither a word, a number nor a list of them")
    return Override(section=section, key=key, values=tuple(map(_directive, items)))


def _directive(item: str | float) -> str:
    """Return a value in the form that systemd reads."""
    if isinstance(item, bool):
        return "yes" if item else "no"
    return one_line(item) if isinstance(item, str) else shown(item)


GpuChoice = Annotated[Gpus, ValueParser(_gpus), TypeName("all or list")]
Kv = Annotated[KvCache, ValueParser(_kv), TypeName("word or pair")]
ThinkingChoice = Annotated[Thinking, ValueParser(_thinking), TypeName("`off`, `on` or a budget")]
Layers = Annotated[Literal["all"] | int, ValueParser(_layers), TypeName("all or number")]
WordOrWords = Annotated[tuple[str, ...], ValueParser(_word_or_words), TypeName("word or list")]
DraftModel = Annotated[str, Check(one_line), Check(_draft_model), TypeName("path or hf:")]
AdapterPath = Annotated[DraftModel, Check(_no_separator)]
ParameterValues = Annotated[Mapping[str, object], ValueParser(_parameters), TypeName("table")]
ParameterNames = Annotated[
    tuple[Annotated[str, Check(_parameter)], ...], Length(most=_MAX_PARAMETERS), Check(no_doubles)
]
JsonTable = Annotated[Mapping[str, object], ValueParser(_json_table), TypeName("table")]
UnitOverrides = Annotated[tuple[Override, ...], ValueParser(_overrides), TypeName("table")]
