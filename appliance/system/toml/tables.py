"""Models of pydantic for the tables of a file, made from dataclasses whose fields are its keys.

A field is a key if a `Doc` is among its marks (see `appliance.model.value_types`). A model has no
other keys, and takes no value of another type. What it has checked are the dataclass's own values.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from types import GenericAlias, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import pydantic
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    PlainSerializer,
    PlainValidator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from appliance.model import value_types
from appliance.model.quantities import size_text
from appliance.model.value_types import Check, Doc, Length, Range, ValueParser, WrongValueError

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


@dataclass(frozen=True, slots=True)
class Rules:
    """Mark that gives a key of the settings the rules of a type that profiles have too."""

    of: Any

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of that type."""
        return handler.generate_schema(validated(self.of))


AbsolutePath = Annotated[str, Rules(value_types.AbsolutePath)]
Deadline = Annotated[float, Rules(value_types.Deadline)]
Duration = Annotated[float, Rules(value_types.Duration)]
Port = Annotated[int, Rules(value_types.Port)]
Size = Annotated[int, Rules(value_types.Size), PlainSerializer(size_text, when_used="json")]
User = Annotated[str, Rules(value_types.User)]
