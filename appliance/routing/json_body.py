"""JSON request body: its model, and changes that leave every other byte as it was."""

from collections.abc import Generator
from typing import Final

from appliance.routing.body_changes import (
    LONG_BYTES,
    BodyChanges,
    Cut,
    Edit,
    Edits,
    Pieces,
    splice,
)
from appliance.routing.json_scanner import (
    BodyError,
    Member,
    decode_string,
    find_plain_model,
    scan_member_object,
    scan_object,
    scan_plain_object,
)
from appliance.routing.long_json import LongJsonScanner

__all__ = ["BodyError", "JsonBody", "parse_json_in_steps"]

_LONGEST_MODEL: Final = 4 << 10
"""Longest JSON text of a model's name, in bytes: the name is looked up and quoted in errors."""
_LARGEST_INSIDE: Final = 32 << 10
"""Largest inner object that may change, in bytes: it is scanned in one go."""


class JsonBody:
    """Model of a JSON body, and the members of its object, found in one pass.

    Args:
        body: Whole body.
        top: Where the object's brace is, and its members; None: the body is scanned here.
        plain: Result of `scan_plain_object`; the members are scanned when they are needed.

    Raises:
        BodyError: The body is no JSON object in UTF-8, has two values for a key that it is routed
            by, is nested too deeply, or has too many values.
    """

    __slots__ = ("_body", "_span", "_top", "model", "streams")

    def __init__(
        self,
        body: bytes,
        top: tuple[int, list[Member]] | None = None,
        plain: tuple[str | None, bool] | None = None,
    ) -> None:
        self._body = body
        self._top = top
        self._span: tuple[int, int] | None = None
        self.model: str | None = None
        """Model that the client asks for; None: none, or null."""
        self.streams: bool = False
        """Whether the client asks for a stream of events."""
        if plain is None:
            self._read_members()
        else:
            self.model, self.streams = plain

    def _read_members(self) -> None:
        body = self._body
        self._top = self._top or scan_object(body)
        _, found = self._top
        seen_stream = False
        for key, _, start, end in found:
            if key == "model":
                if self._span is not None:
                    raise _twice("model")
                self._span = start, end
                self.model = _decode_model(body[start:end])
            elif key == "stream":
                if seen_stream:
                    raise _twice("stream")
                seen_stream = True
                self.streams = body[start:end] == b"true"

    def apply(self, changes: BodyChanges) -> bytes | Pieces:
        """Return the body with changes; the very same object when there is nothing to change.

        Raises:
            BodyError: A key that would be changed is there twice.
        """
        body = self._body
        if changes.model is not None and not changes.others:
            plain = self._top is None and self.model is not None
            span = find_plain_model(body) if plain else self._span
            if span is not None:
                return _replace(body, *span, changes.model)
        at, found = self._top or scan_object(body)
        return splice(body, _cuts(body, at, found, changes.edits, ""))


def _replace(body: bytes, start: int, end: int, new: bytes) -> bytes | Pieces:
    """Return the body with other bytes in one place; the very same object where they are the same."""
    if body[start:end] == new:
        return body
    if len(body) > LONG_BYTES:
        return splice(body, [(start, end, new)])
    return b"".join((body[:start], new, body[end:]))


def parse_json_in_steps(body: bytes) -> Generator[None, None, JsonBody]:
    """Parse a body in steps of a few milliseconds, each up to a ``yield``; short ones need none.

    Raises:
        BodyError: See `JsonBody`.
    """
    if len(body) <= LONG_BYTES:
        return JsonBody(body, plain=scan_plain_object(body))
    scanner = LongJsonScanner(body)
    yield from scanner.steps()
    return JsonBody(body, (scanner.opening, scanner.members))


def _decode_model(raw: bytes) -> str | None:
    if raw == b"null":
        return None
    if raw[:1] != b'"':
        raise BodyError("model must be a string", "model")
    if len(raw) > _LONGEST_MODEL:
        raise BodyError("model is too long", "model")
    return decode_string(raw)


def _twice(name: str) -> BodyError:
    return BodyError(f"{name} is there twice", name)


def _cuts(body: bytes, opening: int, found: list[Member], edits: Edits, above: str) -> list[Cut]:
    """Return the cuts of the object at a brace.

    Args:
        body: Whole body.
        opening: Where the object's brace is.
        found: Members of the object.
        edits: Edits by key.
        above: Keys that lead to the object, each with a dot behind it.
    """
    cuts: list[Cut] = []
    seen: set[str] = set()
    removed: list[bool] = []
    for key, _, start, end in found:
        edit = edits.get(key)
        removed.append(edit is not None and not edit.value and edit.inside is None)
        if edit is None:
            continue
        if key in seen:
            raise _twice(above + key)
        seen.add(key)
        if not removed[-1]:
            cuts += _value_cuts(body, start, end, edit, f"{above}{key}.")
    cuts += _removal_cuts(found, removed)
    if new := b",".join([e.member for k, e in edits.items() if e.member and k not in seen]):
        cuts.append((opening + 1, opening + 1, new if all(removed) else new + b","))
    return cuts


def _value_cuts(body: bytes, start: int, end: int, edit: Edit, above: str) -> list[Cut]:
    """Return the cuts of one value that stays."""
    if edit.inside is not None and body[start : start + 1] == b"{":
        if end - start > _LARGEST_INSIDE:
            raise BodyError(f"{above[:-1]} is too large to be changed", above[:-1])
        return _cuts(body, start, scan_member_object(body, start, end), edit.inside, above)
    # Where the client sends a value that is no object, the object of set values replaces it.
    if not edit.value or body[start:end] == edit.value:
        return []
    return [(start, end, edit.value)]


def _removal_cuts(found: list[Member], removed: list[bool]) -> list[Cut]:
    """Return the cuts that take members out, each with one comma."""
    if True not in removed:
        return []
    kept = [at for at, out in enumerate(removed) if not out]
    if not kept:
        return [(found[0][1], found[-1][3], b"")]
    last = kept[-1]
    cuts = [(found[at][1], found[at + 1][1], b"") for at in range(last) if removed[at]]
    if last + 1 < len(found):
        cuts.append((found[last][3], found[-1][3], b""))
    return cuts
