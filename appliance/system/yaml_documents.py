"""YAML as plain lists, tables and texts, read in bounded time and memory.

PyYAML's events are read, never its constructors: no tag makes an object, and every scalar stays the text
that it is. An alias is copied each time, within a budget, so that a few lines cannot stand for gigabytes.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from appliance.system.toml.file import MAX_BYTES

_MOST_VALUES: Final = 50_000
"""Most values of a document, each copy of an alias counted."""
_MOST_DEPTH: Final = 32
_MERGE: Final = "<<"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


class YamlFaultError(Exception):
    """YAML that is not read; `str()` says why, with its line."""


class PlainText(str):
    """Scalar without quotes, which may be meant as a number or a truth value."""

    __slots__ = ()


def read_yaml(text: str) -> Any:
    """Return the one document in a text: tables, lists, texts, and None for nothing.

    Raises:
        YamlFaultError: it is no YAML, too large, too deep, or has several documents.
    """
    if len(text) > MAX_BYTES:
        raise YamlFaultError(f"has more than {MAX_BYTES >> 10} KiB")
    try:
        return _YamlReader(text).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be read"
        line = "" if mark is None else f"line {mark.line + 1}: "
        raise YamlFaultError(f"{line}not YAML: {problem}") from error


class _YamlReader:
    def __init__(self, text: str) -> None:
        # The C parser reads a megabyte in a tenth of a second, the other one in 20.
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._events: Iterator[Any] = yaml.parse(text, Loader=loader)
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._values = 0

    def document(self) -> Any:
        found: list[Any] = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if found:
                    raise YamlFaultError(f"{_line(event)}has more than one document: keep one")
                found.append(self._value(next(self._events), 0))
        return found[0] if found else None

    def _value(self, event: Any, depth: int) -> Any:
        """Read the value that begins with `event`."""
        if depth > _MOST_DEPTH:
            raise YamlFaultError(f"{_line(event)}nests deeper than {_MOST_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise YamlFaultError(
                    f"{_line(event)}refers to *{event.anchor}, which is not set before"
                )
            value, size = self._anchors[event.anchor]
            self._count(size, event)
            return value
        before = self._values
        self._count(1, event)
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = list(self._items(yaml.SequenceEndEvent, depth))
        else:
            value = self._table(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._values - before)
        return value

    def _items(self, end: type, depth: int) -> Iterator[Any]:
        while not isinstance(event := next(self._events), end):
            yield self._value(event, depth + 1)

    def _table(self, depth: int) -> Mapping[str, Any]:
        table: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        items = self._items(yaml.MappingEndEvent, depth)
        for key in items:
            value = next(items)
            if not isinstance(key, str):
                raise YamlFaultError("a key is a list, a table or nothing: write text")
            if key == _MERGE and isinstance(key, PlainText):
                for source in value if isinstance(value, list) else [value]:
                    if isinstance(source, dict):
                        self._count(len(source), None)
                        merged = source | merged
            else:
                table[str(key)] = value
        return merged | table

    def _count(self, more: int, event: Any) -> None:
        self._values += more
        if self._values > _MOST_VALUES:
            line = "" if event is None else _line(event)
            raise YamlFaultError(f"{line}has more than {_MOST_VALUES} values, aliases counted")


def _scalar(event: Any) -> str | None:
    if event.style in {"'", '"', "|", ">"}:
        return str(event.value)
    return None if event.value in _NULLS else PlainText(event.value)


def _line(event: Any) -> str:
    return f"line {event.start_mark.line + 1}: "
