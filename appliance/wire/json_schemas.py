"""JSON Schema (draft 2020-12) of types: the descriptions are those of their docstrings.

Schemas of the command's output and of the OpenAPI document are derived here. Types are text, paths, numbers,
true or false, null, literals, enumerations of text, typed dictionaries, dataclasses, records of
`appliance.model.record`, models of settings (pydantic), sequences, sets, mappings from text, and unions of
these. Objects may have further keys, as later releases add some. A key is required where the type always has it.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache, reduce
from itertools import pairwise
from operator import or_
from pathlib import PurePath
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import UNSET, UnsetType

from appliance.model.record import Document, Record

Schema = dict[str, Any]
REFERENCE: Final = "$ref"
DEFINITIONS: Final = "$defs"
"""Key of a schema with the schemas that it refers to."""
_PLAIN: Final[Mapping[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    NoneType: "null",
}
_LISTS: Final = (list, tuple, frozenset, Sequence)


class SchemaDeriver:
    """Deriver of schemas; types with keys become definitions, which the schemas refer to.

    Args:
        partial: Types of which a document may leave out any key, because another process made it, whose
            release may differ.
        whole: Records of which a document has each field, although a field with a default may be missing elsewhere.
        forms: Types that stand in place of others, which documents have in another form.
        place: Place of the definitions in the document.
        are_records_whole: Whether records have each field, as in a document that this process made of them;
            False: fields with a default may be left out by another release.
    """

    def __init__(
        self,
        partial: frozenset[type] = frozenset(),
        *,
        whole: frozenset[type] = frozenset(),
        forms: Mapping[type, Any] = MappingProxyType({}),
        place: str = f"#/{DEFINITIONS}/",
        are_records_whole: bool = False,
    ) -> None:
        self.definitions: dict[str, Schema] = {}
        self._partial = partial
        self._whole = whole
        self._forms = forms
        self._place = place
        self._are_records_whole = are_records_whole

    def schema(self, kind: Any) -> Schema:
        """Return the schema of values of a type. Raises `TypeError` for one that has no form in JSON."""
        if isinstance(kind, type) and get_origin(kind) is None:
            return self._schema_of_class(kind)
        origin, arguments = get_origin(kind), get_args(kind)
        if kind is Any:
            found: Schema = {}
        elif origin is Annotated:
            found = _own_schema(arguments[1:]) or self.schema(
                _serialized(arguments[0], arguments[1:])
            )
        elif origin is Literal:
            found = {"enum": list(arguments)}
        elif origin in {Union, UnionType}:
            found = self._union(arguments)
        elif origin in _LISTS:
            found = {"type": "array", "items": self.schema(arguments[0])}
        elif origin is Mapping or origin is dict:
            values = self.schema(arguments[1])
            found = {"type": "object", **({"additionalProperties": values} if values else {})}
        else:
            raise TypeError(f"{kind} has no form in JSON")
        return found

    def _schema_of_class(self, kind: type) -> Schema:
        if kind in self._forms:
            found = self.schema(self._forms[kind])
        elif kind in _PLAIN:
            found = {"type": _PLAIN[kind]}
        elif kind is object:
            found = {}
        elif kind is dict:
            found = {"type": "object"}
        elif issubclass(kind, PurePath):
            found = {"type": "string"}
        elif issubclass(kind, StrEnum):
            found = {"type": "string", "enum": [word.value for word in kind]}
        elif has_keys(kind):
            found = {REFERENCE: self._place + self._define(kind)}
        else:
            raise TypeError(f"{kind} has no form in JSON")
        return found

    def event(self, kind: type[Record], name: str) -> Schema:
        """Return the schema of the lines that report an event."""
        own = self._object(kind)
        properties = {"event": {"const": name}, **own["properties"]}
        if properties.pop("details", None) is not None:
            own["description"] += " Further keys are those that the verb promises."
        required = [key for key in own["required"] if key in properties]
        self.definitions[kind.__name__] = {
            **own,
            "properties": properties,
            "required": ["event", *required],
        }
        return {REFERENCE: self._place + kind.__name__}

    def _union(self, members: tuple[Any, ...]) -> Schema:
        schemas = [self.schema(member) for member in members]
        if all(schema.keys() == {"type"} for schema in schemas):
            return {"type": [schema["type"] for schema in schemas]}
        return {"anyOf": schemas}

    def _define(self, kind: type) -> str:
        name = kind.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # a type may have itself as a part
            self.definitions[name] = self._object(kind)
        return name

    def _object(self, kind: type) -> Schema:
        texts = _key_texts(kind)
        properties = {}
        for key, annotation in _annotations(kind).items():
            schema = self.schema(annotation)
            properties[key] = {**schema, "description": texts[key]} if key in texts else schema
        return {
            "type": "object",
            "description": _text(inspect.getdoc(kind) or ""),
            "properties": properties,
            "required": self._required(kind),
        }

    def _required(self, kind: type) -> list[str]:
        """Return the keys that a value always has."""
        keys = list(_annotations(kind))
        if kind in self._partial:
            return []
        if issubclass(kind, Record):
            is_whole = self._are_records_whole or kind in self._whole or issubclass(kind, Document)
            fields = msgspec.structs.fields(kind)
            always = {f.name for f in fields if f.required or is_whole}
            return [k for k in keys if k in always - {f.name for f in fields if f.default is UNSET}]
        known = getattr(kind, "__required_keys__", keys)
        return [key for key in keys if key in known]


def has_keys(kind: type) -> bool:
    """Tell whether values of a type are objects with known keys."""
    marks = ("__required_keys__", "model_fields")
    return is_dataclass(kind) or issubclass(kind, Record) or any(hasattr(kind, m) for m in marks)


def _text(docstring: str) -> str:
    """Return a docstring in one line, in words of JSON."""
    return re.sub(r"\bNone\b", "null", " ".join(docstring.split())).replace("``", "`")


def _annotations(kind: type) -> dict[str, Any]:
    if (fields := getattr(kind, "model_fields", None)) is not None:
        return {key: _serialized(field.annotation, field.metadata) for key, field in fields.items()}
    # Modules that load at every command import the types of annotations for type checkers alone.
    names = {
        "ClassVar": ClassVar,
        "Json": Mapping[str, object],
        "Mapping": Mapping,
    }
    names = {**vars(sys.modules[kind.__module__]), **names}
    hints = get_type_hints(kind, localns=names, include_extras=True)
    return {key: _plain_hint(hint) for key, hint in hints.items() if not key.startswith("_")}


def _plain_hint(hint: Any) -> Any:
    """Return the type of a key where it is there."""
    if get_origin(hint) is NotRequired:
        return get_args(hint)[0]
    members = get_args(hint) if get_origin(hint) in {Union, UnionType} else ()
    if UnsetType in members:
        return reduce(or_, (one for one in members if one is not UnsetType))
    return hint


def _own_schema(metadata: Iterable[Any]) -> Schema:
    """Return the schema that an annotation states itself, as of words that later releases add to; empty: none."""
    stated = (one.extra_json_schema for one in metadata if isinstance(one, msgspec.Meta))
    return dict(next(filter(None, stated), {}))


def _serialized(annotation: Any, metadata: Iterable[Any]) -> Any:
    """Return the type that an annotation has in JSON: that of its serializer (pydantic's), if it has one."""
    serializers = (one.func for one in metadata if hasattr(one, "when_used"))
    serializer = next(serializers, None)
    return annotation if serializer is None else get_type_hints(serializer)["return"]


@cache
def _key_texts(kind: type) -> Mapping[str, str]:
    """Return the docstrings of the keys of a class and of those that it extends."""
    if (fields := getattr(kind, "model_fields", None)) is not None:
        return {key: _text(field.description or "") for key, field in fields.items()}
    found: dict[str, str] = {}
    tree = ast.parse(inspect.getsource(kind))
    source = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    for base in source.bases:  # a typed dictionary does not know at run time which one it extends
        extended = vars(sys.modules[kind.__module__]).get(ast.unparse(base))
        if isinstance(extended, type) and extended is not Record and has_keys(extended):
            found |= _key_texts(extended)
    for statement, after in pairwise(source.body):
        match statement, after:
            case (
                ast.AnnAssign(target=ast.Name(id=key)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[key] = _text(text)
            case _:
                pass
    return found
