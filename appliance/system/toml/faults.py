"""Sentences for pydantic's errors, with the place of the key."""

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from appliance.model.spec import Where
from appliance.model.value_types import shown

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
