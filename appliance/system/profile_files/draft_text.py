"""Text of profiles that are made: keys with comments after them, and comments on lines of their own."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import tomlkit

from appliance.model.wording import printable
from appliance.profiles.foreign.profile_draft import DraftKey

_WIDTH: Final = 100
_MOST_COMMENT: Final = 300


def keys_text(keys: Iterable[DraftKey]) -> str:
    """Return keys as the text of a file; those of one table stand together."""
    lines: list[str] = []
    table = ""
    for key in keys:
        if key.table != table:
            table = key.table
            lines += ["", f"[{table}]"]
        lines.append(assignment(key))
    return "".join(f"{line}\n" for line in lines)


def assignment(key: DraftKey) -> str:
    """Return a key with its value, and its comment after them."""
    name = tomlkit.key(key.key).as_string()
    if key.table == "unit":
        name = tomlkit.key(key.key.split(".")).as_string()
    return f"{name} = {toml_value(key.value)}{after_value(key.comment)}"


def after_value(text: str) -> str:
    """Return a comment that follows a value; empty: there is none."""
    return f"  # {short_line(text)}" if text else ""


def short_line(text: str) -> str:
    """Return a text on one line, cut."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MOST_COMMENT else f"{line[:_MOST_COMMENT]}…"


def toml_value(value: Any) -> str:
    """Return a value as TOML; a table inside a value is an inline one."""
    if isinstance(value, Mapping):
        pairs = (f"{tomlkit.key(str(k)).as_string()} = {toml_value(v)}" for k, v in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    text: str = tomlkit.item(value).as_string()
    return text


def comment_lines(text: str) -> Iterator[str]:
    """Yield a text as lines of comments."""
    line = "#"
    for word in printable(text).split(" "):
        if len(line) + len(word) >= _WIDTH and line != "#":
            yield line
            line = "#  "
        line += f" {word}"
    yield line
