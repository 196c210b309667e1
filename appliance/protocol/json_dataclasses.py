"""Dataclasses from JSON: every value is checked against the annotation of its field.

A field that is missing has its default, and a name that is no field is ignored, so that releases of
one format can read each other's files. The way out is `dataclasses.asdict`. Annotations may be text,
numbers, true or false, null, literals, enumerations of text, dataclasses, `tuple[X, ...]`,
`frozenset[X]`, `Mapping[str, object]` (any JSON object) and unions of these.

For processes that import dataclasses anyway; `record` and `json_fields` are for the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
_Reader = Callable[[Any], Any]


class JsonValueError(ValueError):
    """Value that is not of its field's type."""

    def __init__(self, fault: str, place: str = "") -> None:
        super().__init__(f"{place} {fault}" if place else fault)
        self._fault = fault
        self._place = place

    def inside(self, name: str) -> "JsonValueError":
        """Return the same error with the field `name` before its place."""
        return JsonValueError(self._fault, f"{name}.{self._place}" if self._place else name)


def from_json(kind: type[T], value: object) -> T:
    """Return the `kind` that a decoded JSON value stands for. Raises `JsonValueError`."""
    return cast("T", _reader(cast("Any", kind))(value))


@cache
def _reader(kind: Any) -> _Reader:
    """Return the function that checks and converts values for an annotation."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        reader = _PLAIN[kind]
    elif is_dataclass(kind):
        reader = _dataclass_reader(kind)
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        reader = _word_reader(kind, tuple(kind))
    elif origin is Literal:
        reader = _word_reader(str, arguments)
    elif origin in {Union, UnionType}:
        reader = _union_reader([_reader(one) for one in arguments])
    elif origin in {tuple, frozenset}:
        reader = _list_reader(origin, _reader(arguments[0]))
    elif origin is Mapping:
        reader = _object
    else:
        raise TypeError(f"{kind} has no form in JSON")
    return reader


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise JsonValueError("is no text")
    return value


def _whole(value: object) -> int:
    if type(value) is not int:
        raise JsonValueError("is no whole number")
    return value


def _number(value: object) -> float:
    try:
        number = float(value) if type(value) in {int, float} else None  # type: ignore[arg-type]
    except OverflowError:
        number = None
    if number is None or not isfinite(number):
        raise JsonValueError("is no number")
    return number


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise JsonValueError("is neither true nor false")
    return value


def _null(value: object) -> None:
    if value is not None:
        raise JsonValueError("is not null")


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise JsonValueError("is no object")
    return value


_PLAIN: Mapping[Any, _Reader] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _truth,
    NoneType: _null,
}


def _word_reader(convert: Callable[[str], str], words: tuple[str, ...]) -> _Reader:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise JsonValueError(f"is none of {', '.join(words)}")
        return convert(value)

    return read


def _union_reader(members: list[_Reader]) -> _Reader:
    """Return a reader that tries the members in order; the last one but null tells its error."""
    has_null = _null in members
    *earlier, last = [member for member in members if member is not _null]

    def read(value: object) -> Any:
        if value is None and has_null:
            return None
        for member in earlier:
            try:
                return member(value)
            except JsonValueError:
                continue
        return last(value)

    return read


def _list_reader(collect: Callable[[list[Any]], Any], member: _Reader) -> _Reader:
    def read(value: object) -> Any:
        if not isinstance(value, list):
            raise JsonValueError("is no list")
        return collect([member(item) for item in value])

    return read


def _dataclass_reader(kind: Any) -> _Reader:
    hints = get_type_hints(kind)
    readers = [(field.name, _reader(hints[field.name])) for field in fields(kind)]
    required = {
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    }

    def read(value: object) -> Any:
        entry = _object(value)
        found, name = {}, ""
        try:
            for name, reader in readers:
                if name in entry:
                    found[name] = reader(entry[name])
        except JsonValueError as error:
            raise error.inside(name) from None
        if len(found) < len(readers) and (missing := required - found.keys()):
            raise JsonValueError("is missing", min(missing))
        return kind(**found)

    return read
