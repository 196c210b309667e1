"""Copies of a profile's text with other values, in which comments, order and spacing stay."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, InlineTable
from tomlkit.toml_document import TOMLDocument

from appliance.model.errors import ProfileError
from appliance.model.wording import printable
from appliance.profiles.proposing.example_changes import KeyChange
from appliance.system.profile_files.draft_text import toml_value
from appliance.system.toml.file import FaultyFileError, parse_document

_MOST_PARTS: Final = 3
_VALUE: Final = "value"


def change_of(text: str) -> KeyChange | None:
    """Return the change that ``KEY=VALUE`` means; None: it is not of that form.

    A value that is not TOML is a text: ``model=/m.gguf`` needs no quotation marks.
    """
    key, equals, value = text.partition("=")
    where = tuple(part.strip() for part in key.split("."))
    if not equals or not all(where) or len(where) > _MOST_PARTS:
        return None
    return KeyChange(where=where, value=_parsed(value.strip()))


def _parsed(text: str) -> object:
    try:
        table = parse_document(f"{_VALUE} = {text}".encode()).table
    except (FaultyFileError, UnicodeEncodeError):
        return text
    return table[_VALUE] if set(table) == {_VALUE} else text


def changed(text: str, changes: Iterable[KeyChange]) -> str:
    """Return a profile's text with other values.

    Raises:
        ProfileError: the text is not TOML, or a key stands below one that is no table.
    """
    try:
        document = tomlkit.parse(text)
        for change in changes:
            _apply(document, change)
        return tomlkit.dumps(document)
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise ProfileError(f"the profile cannot be changed: {error}") from error


def _apply(document: TOMLDocument, change: KeyChange) -> None:
    *way, key = change.where
    table: Any = document
    for name in way:
        if name not in table:
            if change.value is None:
                return
            table[name] = tomlkit.table()
        table = table[name]
        if not isinstance(table, AbstractTable | InlineTable):
            raise ProfileError(f"{'.'.join(change.where)}: {name} is no table")
    if change.value is None:
        if key in table:
            table.remove(key)
        return
    table[key] = tomlkit.value(toml_value(change.value))
    if change.comment is not None:
        trivia = table[key].trivia
        trivia.comment = f"# {printable(change.comment)}" if change.comment else ""
        trivia.comment_ws = "  " if change.comment else ""


def paths_in(table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the absolute paths among a profile's values, each with the way to its key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            for way, path in paths_in(value):
                yield (key, *way), path
        for item in (
            value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        ):
            if isinstance(item, str) and item.startswith("/"):
                yield (key,), item
