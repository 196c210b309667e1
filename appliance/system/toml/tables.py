"""Models of pydantic for the tables of a file, made from dataclasses whose fields are its keys, and their faults.

A field is a key if a `Doc` is among its marks (see `appliance.model.value_types`). A model has no
other keys, and takes no value of another type. What it has checked are the dataclass's own values. A fault is a
sentence for an error of pydantic, with the place of the key.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import SequenceMatcher, get_close_matches
from enum import StrEnum
from types import GenericAlias, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import pydantic
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from appliance.model.quantities import size_text
from appliance.model.spec import Where
from appliance.model.value_types import (
    Check,
    Doc,
    Length,
    Range,
    TypeName,
    ValueParser,
    WrongValueError,
    shown,
)

_UNIONS: Final = (Union, UnionType)


class Table(BaseModel):
    """Table of a file: no key that is not listed, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)


def table_of(cls: type, **more: Any) -> type[Table]:
    """Make the model of the keys in a dataclass.

    Args:
        cls: The dataclass; its docstring is the model's.
        more: Further fields, or others instead of its own, as `pydantic.create_model` takes them.
    """
    keys: dict[str, Any] = {}
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        for mark in get_args(hints[field.name])[1:]:
            if isinstance(mark, Doc):
                keys[field.name] = (validated(hints[field.name]), _field(field, mark))
    model = pydantic.create_model(cls.__name__, __base__=Table, **{**keys, **more})
    model.__doc__ = cls.__doc__
    return model


def given(table: BaseModel) -> dict[str, Any]:
    """Return the values of the keys that the file has, by field."""
    return {name: getattr(table, name) for name in table.model_fields_set}


def _field(field: Field[Any], doc: Doc) -> Any:
    default = field.default
    if field.default_factory is not MISSING:
        default = field.default_factory()
    if doc.optional or is_dataclass(default):
        default = None  # a table that is not in the file has the dataclass's defaults
    return pydantic.Field(
        default=... if default is MISSING else default,
        alias=doc.key or None,
        description=doc.text,
    )


def validated(hint: Any) -> Any:
    """Return the type that pydantic checks for a dataclass's field of the type `hint`."""
    marks: list[Any] = []
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
    rules = [_rule(mark, hint) for mark in marks if not isinstance(mark, Doc)]
    if not any(isinstance(mark, ValueParser) for mark in marks):
        hint, *makers = _in_file(hint)
        rules += makers
    if TypeName("size") in marks:
        rules.append(PlainSerializer(size_text, when_used="json"))
    return Annotated[(hint, *rules)] if rules else hint


def _rule(mark: object, hint: Any) -> Any:
    """Return a mark in the form that pydantic takes."""
    match mark:
        case ValueParser(parse):
            return PlainValidator(_raising(parse))
        case Check(check):
            return AfterValidator(_raising(check))
        case Length(least=least, most=most):
            return pydantic.Field(min_length=least, max_length=most)
        case Range(least=least, above=above, most=most):
            finite = False if hint is float else None
            return pydantic.Field(ge=least, gt=above, le=most, allow_inf_nan=finite)
        case _:
            return mark


def _raising(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return `function` with its error in pydantic's form."""

    def validate(value: Any) -> Any:
        try:
            return function(value)
        except WrongValueError as error:
            raise wrong(str(error)) from error

    return validate


def wrong(text: str) -> PydanticCustomError:
    """Make the error that says `text` about a value."""
    return PydanticCustomError("wrong", "{text}", {"text": text})


def _in_file(hint: Any) -> tuple[Any, ...]:
    """Return the type that a value has in a file, then the conversion to the type `hint`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return GenericAlias(list, (validated(arguments[0]),)), AfterValidator(tuple)
    if origin is Mapping:
        return (GenericAlias(dict, tuple(map(validated, arguments))),)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return Literal[tuple(map(str, hint))], AfterValidator(hint)
    for table in (hint, *arguments):
        if isinstance(table, type) and is_dataclass(table):
            return table_of(table) | None, AfterValidator(_maker(table))
    if origin in _UNIONS:
        return (Union[tuple(map(validated, arguments))],)  # noqa: UP007 - made at run time
    return (hint,)


def _maker(cls: type) -> Callable[[Table], object]:
    return lambda table: cls(**given(table))


# --- faults --------------------------------------------------------------------------

_TYPES: Final[Mapping[str, str]] = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_attributes_type": "a table",
    "model_type": "a table",
    "path_type": "a path",
    "string_type": "text in quotes",
}
_LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than": ("gt", "above {}"),
    "greater_than_equal": ("ge", "at least {}"),
    "less_than": ("lt", "below {}"),
    "less_than_equal": ("le", "at most {}"),
}

MOST_FAULTS: Final = 40
"""Most faults reported of one file: a file of twenty thousand unknown keys is no misspelt
profile."""
_CLOSE: Final = 0.6
"""Similarity, as in difflib, from which a word is suggested."""


class ModelFault(NamedTuple):
    """Sentence about a fault, and the place of its key."""

    where: Where
    text: str


def model_faults(
    error: ValidationError, model: type[BaseModel], table: Mapping[str, Any]
) -> Iterator[ModelFault]:
    """Return the first faults in `error`, which `model` raised for `table`."""
    found = error.errors(include_url=False, include_context=True, include_input=False)
    for details in found[:MOST_FAULTS]:
        where = tuple(part for part in details["loc"] if part != "[key]")
        yield ModelFault(where=where, text=_sentence(details, where, model, table))
    if len(found) > MOST_FAULTS:
        yield ModelFault(where=(), text=f"and {len(found) - MOST_FAULTS} more faults")


def _sentence(
    details: ErrorDetails, where: Where, model: type[BaseModel], table: Mapping[str, Any]
) -> str:
    if details["type"] == "extra_forbidden":
        return unknown_key(str(where[-1]), where[:-1], model)
    if details["type"] == "missing":
        home = f" in [{'.'.join(map(str, where[:-1]))}]" if where[:-1] else ""
        return f'"{where[-1]}" is missing{home}'
    return _about_value(details, where, _value_at(table, where))


def _about_value(details: ErrorDetails, where: Where, value: object) -> str:
    of_key = details["loc"][-1:] == ("[key]",)
    kind, context = details["type"], details.get("ctx", {})
    name = _name(where[:-1] if of_key else where)
    if kind in {"too_short", "too_long"}:
        return f"{name} has too {'few' if kind == 'too_short' else 'many'} items"
    wanted = _TYPES.get(kind)
    if kind in _LIMITS:
        key, phrase = _LIMITS[kind]
        wanted = phrase.format(shown(context[key]))
    elif kind == "literal_error":
        wanted = str(context["expected"]).replace("'", '"')
    if wanted is not None:
        closest = _closest(value, wanted) if kind == "literal_error" else ""
        return f"{name} is {wanted}, not {shown(value)}{closest}"
    return f"{name} {details['msg']}"


def _closest(value: object, wanted: str) -> str:
    words = wanted.replace(" or ", ", ").replace('"', "").split(", ")
    close = get_close_matches(value[:64], words, n=1) if isinstance(value, str) else []
    return f'; did you mean "{close[0]}"?' if close else ""


def _name(where: Where) -> str:
    """Return ``vllm.dtype`` for a key; ``served, item 2`` for an element."""
    keys = [str(part) for part in where if isinstance(part, str)]
    places = [part for part in where if isinstance(part, int)]
    item = f", item {places[-1] + 1}," if places else ""
    return ".".join(shown(k)[1:-1] for k in keys) + item


def _value_at(table: Mapping[str, Any], where: Where) -> Any:
    value: Any = table
    for part in where:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def unknown_key(key: str, home: Where, model: type[BaseModel]) -> str:
    """Return the sentence about a key that is unknown, or known only in another table."""
    text = f"unknown key {shown(key)}"
    known = {(table, k) for table, inner in _tables(model) for k in _keys(inner)}
    scored = [
        (SequenceMatcher(None, key[:64], k).ratio(), table == home, k, table) for table, k in known
    ]
    ratio, is_here, close, table = max(scored)
    if ratio < _CLOSE:
        return text
    if is_here:
        return f'{text}; did you mean "{close}"?'
    place = f"in [{'.'.join(table)}]" if table else "at the top"
    return f'{text}; did you mean "{close}" {place}?'


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _tables(model: type[BaseModel]) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    yield (), model
    for name, field in model.model_fields.items():
        if inner := table_model(field.annotation):
            yield (field.alias or name,), inner


def table_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model in ``X``, ``X | None`` or a list of it; None: the field is no table."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (table_model(one) for one in getattr(annotation, "__args__", ()))
    return next(filter(None, found), None)
