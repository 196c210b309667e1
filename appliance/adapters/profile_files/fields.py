"""The kinds of value a profile's keys take: each checked as text enters, with a plain sentence.

Every validator raises `wrong`, so that a value has exactly one complaint, whatever its type.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from appliance.domain.quantities import duration_s, size_bytes, size_text
from appliance.domain.spec import Gpus, KvCache, Override

_MAX_TEXT: Final = 4096
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Also what breaks lines, or turns the direction of text around so that it reads as another."""
_SERVED: Final = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9._:/@+*?-]{0,127}\Z")
_USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,30}\Z")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}\Z")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_RANGE: Final = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?\Z", re.ASCII)
_HEALTH: Final = re.compile(r"/[A-Za-z0-9._~/%?&=-]{0,255}\Z")
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_MAX_PARAMETERS: Final = 64
_ROUTED: Final = ("model", "stream")
"""Request parameters that the gateway's own work rests on."""
_MAX_INDEX: Final = 1023
_MAX_GPU: Final = 63
_MAX_SOCKET_BYTES: Final = 107
"""sun_path of unix(7), without its final NUL."""
_MAX_DURATION_S: Final = 7 * 86_400.0
_MAX_BYTES: Final = 1 << 50
_NO_LIMIT_MIB: Final = -1


@dataclass(frozen=True, slots=True)
class Kind:
    """What the reference calls a type of value."""

    name: str


def wrong(text: str) -> PydanticCustomError:
    """The error that says `text` about a value."""
    return PydanticCustomError("wrong", "{text}", {"text": text})


def shown(value: object) -> str:
    """`value` as a message may show it: short, on one line, never a huge number."""
    if isinstance(value, str):
        text = '"' + _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", value[:48]) + '"'
        return text[:-1] + '…"' if len(value) > 48 else text  # noqa: PLR2004 - the same 48
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 1 << 64 else "a huge number"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else "a date or time"


def _one_line(text: str) -> str:
    if len(text) > _MAX_TEXT:
        raise wrong(f"is longer than {_MAX_TEXT} characters")
    if _CONTROL.search(text):
        raise wrong("contains a line break or another control character")
    return text


def _no_final_backslash(text: str) -> str:
    if text.endswith("\\"):
        raise wrong("ends in a backslash, which would join two lines of a unit file")
    return text


def _not_empty(text: str) -> str:
    if not text:
        raise wrong("is empty")
    return text


def _absolute(text: str) -> str:
    if not text.startswith("/") or ".." in text.split("/"):
        raise wrong(f"{shown(text)} is not an absolute path without ..")
    return text


def _matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(text: str) -> str:
        if pattern.match(text) is None:
            raise wrong(f"{shown(text)} is not {what}")
        return text

    return AfterValidator(check)


def _not_root(user: str) -> str:
    if user == "root":
        raise wrong('"root" is refused: a backend never runs as root')
    return user


def _socket(path: str) -> str:
    if len(path.encode()) > _MAX_SOCKET_BYTES:
        raise wrong(f"is longer than the {_MAX_SOCKET_BYTES} bytes a socket's path may have")
    return path


def _absolute_program(words: list[str]) -> list[str]:
    if words:
        _absolute(words[0])
    return words


def _no_doubles(items: list[str]) -> list[str]:
    for place, item in enumerate(items):
        if item in items[:place]:
            raise wrong(f"names {shown(item)} twice")
    return items


Text = Annotated[str, AfterValidator(_one_line), Kind("text")]
Line = Annotated[Text, AfterValidator(_no_final_backslash)]
FullText = Annotated[Text, AfterValidator(_not_empty)]
AbsolutePath = Annotated[Text, AfterValidator(_absolute), Kind("path")]
SocketPath = Annotated[AbsolutePath, AfterValidator(_socket)]
Word = Annotated[str, _matching(_WORD, "a word of letters, digits, dots and dashes"), Kind("word")]
HealthPath = Annotated[str, _matching(_HEALTH, "a path such as /health"), Kind("URL path")]
ServedName = Annotated[
    str,
    _matching(_SERVED, "a model name or pattern: letters, digits and ._:/@+*?-"),
    Kind("name or pattern"),
]
User = Annotated[str, _matching(_USER, "a user's name"), AfterValidator(_not_root), Kind("name")]
VariableName = Annotated[str, _matching(_VARIABLE, "the name of an environment variable")]
Served = Annotated[
    list[ServedName], Field(min_length=1, max_length=64), AfterValidator(_no_doubles)
]
Words = Annotated[list[Text], Field(max_length=256)]
Command = Annotated[
    list[Text], Field(min_length=1, max_length=256), AfterValidator(_absolute_program)
]
Paths = Annotated[list[AbsolutePath], Field(max_length=64)]
Port = Annotated[int, Field(ge=1024, le=65535)]
Count = Annotated[int, Field(ge=1, le=1 << 20)]
Tokens = Annotated[int, Field(ge=16, le=1 << 24)]
Fraction = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


def _size(value: Any) -> int:
    size = size_bytes(value) if isinstance(value, str) else None
    if size is None or size > _MAX_BYTES:
        raise wrong(f'{shown(value)} is not a size such as "18.6GiB"')
    return size


def _duration(value: Any) -> float:
    number = not isinstance(value, bool) and isinstance(value, int | float)
    seconds = float(value) if number and abs(value) <= _MAX_DURATION_S else None
    if isinstance(value, str):
        seconds = duration_s(value)
    if seconds is None or not 0 <= seconds <= _MAX_DURATION_S:
        raise wrong(f'{shown(value)} is not a duration such as "90s" or "5m"')
    return seconds


def _positive(seconds: float) -> float:
    if seconds < 1:
        raise wrong("is shorter than a second")
    return seconds


Size = Annotated[
    int, BeforeValidator(_size), PlainSerializer(size_text, when_used="json"), Kind("size")
]
Duration = Annotated[float, BeforeValidator(_duration), Kind("duration")]
Deadline = Annotated[Duration, AfterValidator(_positive)]


def _gpus(value: Any) -> Gpus:
    if value == "all":
        return "all"
    if not isinstance(value, list) or not all(_is_index(item, _MAX_GPU) for item in value):
        raise wrong(f'{shown(value)} is neither "all" nor a list of GPU indexes such as [0, 1]')
    if len(set(value)) != len(value):
        raise wrong("names a GPU twice")
    return tuple(sorted(value))


def _is_index(value: Any, highest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= highest


def _kv(value: Any) -> KvCache:
    pair = value if isinstance(value, dict) else {"k": value, "v": value}
    words = all(isinstance(p, str) and _WORD.match(p) for p in pair.values())
    if set(pair) != {"k", "v"} or not words:
        raise wrong('is neither a type such as "q8_0" nor { k = "…", v = "…" }')
    return KvCache(k=pair["k"], v=pair["v"])


def _numbers(value: Any) -> tuple[int, ...]:
    """A list of indexes, or "0,2,4-9"."""
    if isinstance(value, list) and all(_is_index(item, _MAX_INDEX) for item in value):
        found = value
    else:
        found = _ranges(value) if isinstance(value, str) and len(value) <= _MAX_TEXT else []
    if not found:
        raise wrong(f'{shown(value)} is not a list or range such as "0,2,4-9"')
    return tuple(sorted(set(found)))


def _ranges(text: str) -> list[int]:
    """Every number in `text`; empty when it is malformed."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > _MAX_INDEX:
            return []
        found.update(range(first, last + 1))
    return sorted(found)


def _layers(value: Any) -> Literal["all"] | int:
    if value == "all":
        return "all"
    if _is_index(value, 9999):
        return int(value)
    raise wrong(f'{shown(value)} is neither "all" nor a number of layers')


def _experts(value: Any) -> Literal["all"] | tuple[int, ...]:
    return "all" if value == "all" else _numbers(value)


def _switch(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value in {"on", "off", "auto"}:
        return str(value)
    raise wrong(f'{shown(value)} is not "on", "off" or "auto"')


def _cache_mib(value: Any) -> int:
    return _NO_LIMIT_MIB if value == "unlimited" else _size(value) >> 20


GpuChoice = Annotated[Gpus, PlainValidator(_gpus), Kind("all or list")]
Kv = Annotated[KvCache, PlainValidator(_kv), Kind("word or pair")]
Cpus = Annotated[tuple[int, ...], PlainValidator(_numbers), Kind("range or list")]
Layers = Annotated[Literal["all"] | int, PlainValidator(_layers), Kind("all or number")]
Experts = Annotated[
    Literal["all"] | tuple[int, ...], PlainValidator(_experts), Kind("all, range or list")
]
OnOffAuto = Annotated[str, PlainValidator(_switch), Kind("true, false or auto")]
CacheMib = Annotated[int, PlainValidator(_cache_mib), Kind("size or unlimited")]


def _parameter(path: str) -> str:
    if not all(_PARAMETER.match(name) for name in path.split(".")):
        raise wrong(f"{shown(path)} is not the name of a request parameter, such as temperature")
    if path.partition(".")[0] in _ROUTED:
        raise wrong(f"{shown(path)} is for the client and the gateway to agree on: leave it out")
    return path


def _parameters(value: Any) -> dict[str, Any]:
    """[gateway] set: inner tables become paths, ``chat_template_kwargs.enable_thinking``."""
    if not isinstance(value, dict):
        raise wrong("is not a table of request parameters")
    found = dict(_paths_of(value))
    if len(found) > _MAX_PARAMETERS:
        raise wrong(f"has more than {_MAX_PARAMETERS} parameters")
    return found


def _paths_of(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        path = _parameter(prefix + name)
        if isinstance(value, dict) and value:
            yield from _paths_of(value, f"{path}.")
        elif _is_json(value):
            yield path, value
        else:
            raise wrong(f"{path} has a value that JSON does not know: {shown(value)}")


def _is_json(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_json(item) for item in value)
    if isinstance(value, dict):
        return all(_is_json(item) for item in value.values())
    return isinstance(value, str | bool | int) or (isinstance(value, float) and isfinite(value))


ParameterValues = Annotated[dict[str, Any], PlainValidator(_parameters), Kind("table")]
Parameters = Annotated[
    list[Annotated[str, AfterValidator(_parameter)]],
    Field(max_length=_MAX_PARAMETERS),
    AfterValidator(_no_doubles),
]


def _overrides(value: Any) -> tuple[Override, ...]:
    """[unit]: ``"Service.Nice" = 5``, ``Service.Nice = 5`` or a table ``[unit.Service]``."""
    if not isinstance(value, dict):
        raise wrong("is not a table of Section.Key = value")
    found: list[Override] = []
    for name, given in value.items():
        section, dot, key = name.partition(".")
        if dot:
            found.append(_override(section, key, given))
        elif isinstance(given, dict):
            found += (_override(section, key, v) for key, v in given.items())
        else:
            raise wrong(f"{shown(name)} is not written as Section.Key, such as Service.Nice")
    if len({o.name for o in found}) != len(found):
        raise wrong("gives a key twice: once dotted and once in quotes or in a table")
    return tuple(found)


def _override(section: str, key: str, value: Any) -> Override:
    if _CONTROL.search(section + key):
        raise wrong(f"{shown(f'{section}.{key}')} contains a control character")
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(i, str | int | float) for i in items):
        raise wrong(f"{section}.{key} is neither a word, a number nor a list of them")
    return Override(section=section, key=key, values=tuple(map(_directive, items)))


def _directive(item: str | float) -> str:
    """A value as systemd writes it."""
    if isinstance(item, bool):
        return "yes" if item else "no"
    return _one_line(item) if isinstance(item, str) else shown(item)


UnitOverrides = Annotated[tuple[Override, ...], PlainValidator(_overrides), Kind("table")]
