"""Types of the values that the keys of a profile take: a Python type with rules for its text.

A type is an ``Annotated`` whose marks say what pydantic cannot know here, where nothing is read:
`appliance.system.toml.tables` makes validators of them, and the reference its descriptions.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from appliance.model.quantities import duration_s, size_bytes

_MAX_TEXT: Final = 4096
_CONTROL: Final = "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
"""Pattern of control characters, line breaks included, and of characters that turn the direction of
text so that it reads as another."""
_MODEL_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}"
_SERVED: Final = r"[A-Za-z0-9*?][A-Za-z0-9._:/@+*?-]{0,127}"
_USER: Final = r"[a-z_][a-z0-9_-]{0,30}"
_VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]{0,255}"
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_MAX_SOCKET_BYTES: Final = 107
"""Size of sun_path in unix(7), without its final NUL."""
_MAX_DURATION_S: Final = 7 * 86_400.0
_MAX_BYTES: Final = 1 << 50
_SHOWN_CHARACTERS: Final = 48


class WrongValueError(ValueError):
    """Value that breaks the rules of its type; the message goes on after the key's name."""


@dataclass(frozen=True, slots=True)
class Doc:
    """Key of a file, for a field: description, and what the Python field does not say."""

    text: str
    """Description for the reference."""
    key: str = ""
    """Name of the key in the file; empty: the field's own."""
    optional: bool = False
    """Whether a file may leave the key out although the field has no default: the loader fills it
    in."""


@dataclass(frozen=True, slots=True)
class TypeName:
    """Name of a type of value in the reference."""

    name: str


@dataclass(frozen=True, slots=True)
class ValueParser:
    """Parser of whatever value TOML gives, in place of a check of its Python type."""

    parse: Callable[[object], object]
    """Function that returns the value. Raises `WrongValueError`."""


@dataclass(frozen=True, slots=True)
class Check:
    """Check of a value that is of its Python type; a tuple is still a list."""

    check: Callable[..., object]
    """Function that returns the value, or its replacement. Raises `WrongValueError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Limits of a number."""

    least: float | None = None
    above: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Limits of the length of a list or table."""

    least: int | None = None
    most: int


def shown(value: object) -> str:
    """Return `value` as a message may show it: short, on one line, never a huge number."""
    if isinstance(value, str):
        text = re.sub(_CONTROL, lambda m: f"\\x{ord(m[0]):02x}", value[:_SHOWN_CHARACTERS])
        return f'"{text}…"' if len(value) > _SHOWN_CHARACTERS else f'"{text}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 1 << 64 else "a huge number"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else "a date or time"


def has_control_character(text: str) -> bool:
    """Tell whether `text` would break lines, or read as another text."""
    return re.search(_CONTROL, text) is not None


def one_line(text: str) -> str:
    """Return `text`. Raises `WrongValueError` if it is long or has control characters."""
    if len(text) > _MAX_TEXT:
        raise WrongValueError(f"is longer than {_MAX_TEXT} characters")
    if has_control_character(text):
        raise WrongValueError("contains a line break or another control character")
    return text


def is_index(value: object, highest: int) -> bool:
    """Tell whether `value` is a whole number from 0 to `highest`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= highest


def is_word(text: str) -> bool:
    """Tell whether `text` is a word of letters, digits, dots and dashes."""
    return re.fullmatch(_WORD, text) is not None


def matching(pattern: str, what: str) -> Check:
    """Make the check of a text that is `what`; all of it matches the regular expression."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise WrongValueError(f"{shown(text)} is not {what}")
        return text

    return Check(check)


def no_doubles(items: Sequence[str]) -> Sequence[str]:
    """Return `items`. Raises `WrongValueError` if two are equal."""
    for place, item in enumerate(items):
        if item in items[:place]:
            raise WrongValueError(f"names {shown(item)} twice")
    return items


def size(value: object) -> int:
    """Return the bytes that a size such as "18.6GiB" means. Raises `WrongValueError`."""
    found = size_bytes(value) if isinstance(value, str) else None
    if found is None or found > _MAX_BYTES:
        raise WrongValueError(f'{shown(value)} is not a size such as "18.6GiB"')
    return found


def _no_final_backslash(text: str) -> str:
    if text.endswith("\\"):
        raise WrongValueError("ends in a backslash, which would join two lines of a unit file")
    return text


def _not_empty(text: str) -> str:
    if not text:
        raise WrongValueError("is empty")
    return text


def _absolute(text: str) -> str:
    if not text.startswith("/") or ".." in text.split("/"):
        raise WrongValueError(f"{shown(text)} is not an absolute path without ..")
    return text


def _absolute_program(words: Sequence[str]) -> Sequence[str]:
    _absolute(words[0])
    return words


def _not_root(user: str) -> str:
    if user == "root":
        raise WrongValueError('"root" is refused: a backend never runs as root')
    return user


def _socket_path(path: str) -> str:
    if len(path.encode()) > _MAX_SOCKET_BYTES:
        raise WrongValueError(
            f"is longer than the {_MAX_SOCKET_BYTES} bytes a socket's path may have"
        )
    return path


def _duration(value: object) -> float:
    seconds = None
    if isinstance(value, str):
        seconds = duration_s(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) <= _MAX_DURATION_S else None
    if seconds is None or not 0 <= seconds <= _MAX_DURATION_S:
        raise WrongValueError(f'{shown(value)} is not a duration such as "90s" or "5m"')
    return seconds


def _at_least_a_second(seconds: float) -> float:
    if seconds < 1:
        raise WrongValueError("is shorter than a second")
    return seconds


Text = Annotated[str, Check(one_line), TypeName("text")]
Line = Annotated[Text, Check(_no_final_backslash)]
FullText = Annotated[Text, Check(_not_empty)]
AbsolutePath = Annotated[Text, Check(_absolute), TypeName("path")]
SocketPath = Annotated[AbsolutePath, Check(_socket_path)]
Word = Annotated[
    str, matching(_WORD, "a word of letters, digits, dots and dashes"), TypeName("word")
]
ServedName = Annotated[
    str,
    matching(_SERVED, "a model name or pattern: letters, digits and ._:/@+*?-"),
    TypeName("name or pattern"),
]
ModelName = Annotated[
    str,
    matching(_MODEL_NAME, "a model name without wildcards: letters, digits and ._:/@+-"),
    TypeName("name"),
]
User = Annotated[str, matching(_USER, "a user's name"), Check(_not_root), TypeName("name")]
VariableName = Annotated[str, matching(_VARIABLE, "the name of an environment variable")]
Served = Annotated[tuple[ServedName, ...], Length(least=1, most=64), Check(no_doubles)]
Words = Annotated[tuple[Text, ...], Length(most=256)]
Command = Annotated[tuple[Text, ...], Length(least=1, most=256), Check(_absolute_program)]
Paths = Annotated[tuple[AbsolutePath, ...], Length(most=64)]
Port = Annotated[int, Range(least=1024, most=65535)]
Count = Annotated[int, Range(least=1, most=1 << 20)]
Tokens = Annotated[int, Range(least=16, most=1 << 24)]
Threads = Annotated[int, Range(least=1, most=1024)]
DraftLength = Annotated[int, Range(least=1, most=1024)]
Shards = Annotated[int, Range(least=1, most=64)]
Fraction = Annotated[float, Range(above=0, most=1)]
Size = Annotated[int, ValueParser(size), TypeName("size")]
Duration = Annotated[float, ValueParser(_duration), TypeName("duration")]
Deadline = Annotated[Duration, Check(_at_least_a_second)]
