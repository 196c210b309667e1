"""JSON schemas of the documents, made from the types that the daemons build them with.

The types are the one description of a document: annotations become types, docstrings of classes and
attributes become descriptions. Values may be text, numbers, true or false, null, literals, enumerations of
text, lists, tuples, mappings, typed dictionaries, dataclasses and records, and unions of these.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from appliance.protocol.record import Record

Schema = dict[str, Any]
REFERENCE: Final = "#/components/schemas/"
_PLAIN: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    object: {},
    Any: {},
}


class SchemaBook:
    """Book of the schemas of classes, each under its name."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}

    def of(self, kind: Any) -> Schema:  # noqa: PLR0911 - one a form
        """Return the schema of an annotation; a class is entered and referred to."""
        origin, arguments = get_origin(kind), get_args(kind)
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if is_typeddict(kind) or is_dataclass(kind) or _is_record(kind):
            return self._class(kind)
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return {"type": "string", "enum": [word.value for word in kind]}
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in {Union, UnionType}:
            return {"anyOf": [self.of(one) for one in arguments]}
        if origin is NotRequired:
            return self.of(arguments[0])
        if origin in {list, tuple, Sequence, frozenset}:
            return {"type": "array", "items": self.of(arguments[0])}
        if origin in {dict, Mapping}:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        raise TypeError(f"{kind} has no schema")

    def _class(self, kind: Any) -> Schema:
        name = kind.__name__
        if name not in self.schemas:
            self.schemas[name] = {}  # a class may contain itself
            texts = _attribute_docstrings(kind)
            properties = {}
            for field, annotation in _hints(kind).items():
                schema = self.of(annotation)
                if text := texts.get(field):
                    schema = {"description": text, **schema}
                properties[field] = schema
            optional: frozenset[str] = getattr(kind, "__optional_keys__", frozenset())
            self.schemas[name] = {
                "type": "object",
                "title": name,
                "description": _joined(kind.__doc__ or ""),
                "properties": properties,
                "required": [field for field in properties if field not in optional],
            }
        return {"$ref": REFERENCE + name}


def _hints(kind: Any) -> Mapping[str, Any]:
    if _is_record(kind):
        # Its base has annotations whose names only a type checker imports.
        own = {field: kind.__annotations__[field] for field in kind.__match_args__}
        kind = type(kind.__name__, (), {"__annotations__": own, "__module__": kind.__module__})
    return get_type_hints(kind, include_extras=True)


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)


@cache
def _attribute_docstrings(kind: Any) -> Mapping[str, str]:
    """Return the docstrings below a class's attributes."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    return dict(_pairs(definition.body)) if isinstance(definition, ast.ClassDef) else {}


def _pairs(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(docstring))),
            ):
                yield name, _joined(docstring)
            case _:
                pass


def _joined(text: str) -> str:
    return " ".join(text.split())
