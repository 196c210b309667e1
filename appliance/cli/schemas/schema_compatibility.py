"""Rule of the versions of a schema: within one, keys are added and nothing else changes.

A key may come, and a list of words may get more of them, as states do with releases. A key may not go, nor
become one that may be missing; a value may not have another type, nor be null where it never was.
"""

from collections.abc import Iterator
from typing import Any

from appliance.wire.json_schemas import DEFINITIONS, REFERENCE, Schema


def breaking_changes(before: Schema, after: Schema) -> list[str]:
    """Return a sentence for each change that breaks readers of the older schema; empty: none does."""
    return list(_Comparison(before, after).changes(before, after, "the document"))


class _Comparison:
    def __init__(self, before: Schema, after: Schema) -> None:
        self._before = before.get(DEFINITIONS, {})
        self._after = after.get(DEFINITIONS, {})
        self._compared: set[tuple[str, str]] = set()

    def changes(self, before: Any, after: Any, place: str) -> Iterator[str]:
        if REFERENCE in before and REFERENCE in after:
            names = (before[REFERENCE], after[REFERENCE])
            if names in self._compared:
                return
            self._compared.add(names)
        before, after = _resolved(before, self._before), _resolved(after, self._after)
        if not before:
            return  # any value was possible
        yield from self._values(before, after, place)
        yield from self._keys(before, after, place)
        for part in ("items", "additionalProperties"):
            if part in before:
                yield from self.changes(before[part], after.get(part, {}), f"each part of {place}")

    def _values(self, before: Schema, after: Schema, place: str) -> Iterator[str]:
        if _types(before) != _types(after):
            yield f"{place} has another type"
        if before.get("const") != after.get("const"):
            yield f"{place} has another value"
        if gone := set(before.get("enum", ())) - set(after.get("enum", ())):
            yield f"{place} no longer knows {', '.join(sorted(map(str, gone)))}"
        old, new = before.get("anyOf", ()), after.get("anyOf", ())
        if len(old) != len(new):
            yield f"{place} has other alternatives"
            return
        for one, other in zip(old, new, strict=True):
            yield from self.changes(one, other, place)

    def _keys(self, before: Schema, after: Schema, place: str) -> Iterator[str]:
        old, new = before.get("properties", {}), after.get("properties", {})
        for key in old:
            if key in new:
                yield from self.changes(old[key], new[key], f"{key} of {place}")
            else:
                yield f"{key} of {place} is gone"
        for key in before.get("required", ()):
            if key in new and key not in after.get("required", ()):
                yield f"{key} of {place} may be missing"


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    reference = schema.get(REFERENCE)
    found: Schema = schema if reference is None else definitions[reference.rpartition("/")[2]]
    return found


def _types(schema: Schema) -> set[str]:
    """Return the types that a value may have; an enumeration of texts is a text."""
    words = schema.get("enum", ())
    is_text = bool(words) and all(isinstance(word, str) for word in words)
    types = schema.get("type", ["string"] if is_text else [])
    return {types} if isinstance(types, str) else set(types)
