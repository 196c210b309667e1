"""JSON request body: its model, and changes that leave every other byte as it was.

The changes that a profile makes are compiled once, for forms too, and spliced into each body. Keys are
taken out first, then set, the shorter ones first. Dots in a key reach into objects, so a name that has
a dot in it cannot be changed. Splicing does not copy the rest of a long body.
"""

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from appliance.routing.json_scanner import (
    BodyError,
    LongJsonScanner,
    Member,
    decode_string,
    find_plain_model,
    scan_member_object,
    scan_object,
    scan_plain_object,
)

_Path = tuple[str, ...]
LONG_BYTES: Final = 16 << 10
"""Longest body that is scanned in one go, which takes 0.4 ms, and copied to be changed: a copy of
64 MiB takes 40 ms, and the memory of another request. Longer bodies are scanned by `LongJsonScanner`."""

Cut = tuple[int, int, bytes]
"""Cut of a body: start, end, and the bytes that replace what lies between."""


class _Removed:
    """Marker of a parameter that is removed."""


_REMOVED: Final = _Removed()

_Tree = dict[str, object]
"""Tree of changes by key: a value, `_REMOVED`, or the tree of an `_InnerObject`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _InnerObject:
    tree: _Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Change of one member of an object."""

    value: bytes = b""
    """JSON text of the new value; of a member that changes inside, text that replaces a value that
    is no object. Empty: the member is removed, or, if it changes inside, a value that is no object
    stays."""
    member: bytes = b""
    """JSON text of name and value, inserted where the member is absent; empty: nothing is
    inserted."""
    inside: "Edits | None" = None
    """Changes inside of an object; None: none."""


Edits = Mapping[str, Edit]
"""Changes of members by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyChanges:
    """Compiled changes, made once for a profile."""

    name: str | None = None
    """Engine's name for its model; None: the client's name stays."""
    model: bytes | None = None
    """JSON text of that name."""
    edits: Edits = field(default_factory=dict)
    """Changes of all members, `model` included."""
    others: bool = False
    """Whether anything but `model` changes."""
    fields: Mapping[str, str | None] = field(default_factory=dict)
    """Changes of a form, which is flat: text by name; None: the field is removed."""


def compile_changes(
    *, model: str | None, set_: Mapping[str, object], strip: Sequence[str]
) -> BodyChanges:
    """Compile changes of request bodies.

    Args:
        model: Engine's name for its model; None: the client's stays.
        set_: Values by key, whatever the client sends.
        strip: Keys that are taken out.
    """
    wanted = _settled(set_, strip)
    others = bool(wanted)
    if model is not None:
        others = any(path[0] != "model" for path in wanted)
        wanted = {path: value for path, value in wanted.items() if path[0] != "model"}
        wanted["model",] = model
    tree: _Tree = {}
    for path, value in wanted.items():
        _insert(tree, path, value)
    return BodyChanges(
        name=model,
        model=None if model is None else _text(model).encode(),
        edits=_edits(tree),
        others=others,
        fields={path[0]: _form_text(value) for path, value in wanted.items() if len(path) == 1},
    )


def _edits(tree: _Tree) -> Edits:
    return {key: _edit(key, found) for key, found in tree.items()}


def _edit(key: str, found: object) -> Edit:
    inside = None
    if isinstance(found, _InnerObject):
        inside = _edits(found.tree)
        members = [edit.member for edit in inside.values() if edit.member]
        value = b"{%b}" % b",".join(members) if members else b""
    else:
        value = b"" if found is _REMOVED else _text(found).encode()
    member = b"%b:%b" % (_text(key).encode(), value) if value else b""
    return Edit(value=value, member=member, inside=inside)


def _settled(set_: Mapping[str, object], strip: Sequence[str]) -> dict[_Path, object]:
    """Return the wanted values by path; a later value is inserted into one at a shorter path."""
    wanted: dict[_Path, object] = {}
    for path in sorted((tuple(key.split(".")) for key in strip), key=len):
        if _covering(wanted, path) is None:
            wanted[path] = _REMOVED
    for path, value in sorted(((tuple(k.split(".")), v) for k, v in set_.items()), key=_depth):
        above = _covering(wanted, path)
        if above is None:
            wanted[path] = value
        else:
            wanted[above] = _put(wanted[above], path[len(above) :], value)
    return wanted


def _depth(item: tuple[_Path, object]) -> int:
    return len(item[0])


def _covering(wanted: Mapping[_Path, object], path: _Path) -> _Path | None:
    """Return the path itself or one that leads to it, if present already."""
    prefixes = (path[:length] for length in range(1, len(path) + 1))
    return next((prefix for prefix in prefixes if prefix in wanted), None)


def _put(base: object, path: _Path, value: object) -> object:
    """Return a value with another one inserted into it; a value that is no object becomes one."""
    if not path:
        return value
    old = dict(base) if isinstance(base, Mapping) else {}
    return old | {path[0]: _put(old.get(path[0]), path[1:], value)}


def _insert(tree: _Tree, path: _Path, value: object) -> None:
    for key in path[:-1]:
        inside = tree.setdefault(key, _InnerObject(tree={}))
        # No path of `wanted` leads through another.
        assert isinstance(inside, _InnerObject)  # noqa: S101
        tree = inside.tree
    tree[path[-1]] = value


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _form_text(value: object) -> str | None:
    if value is _REMOVED:
        return None
    return value if isinstance(value, str) else _text(value)


class Pieces:
    """Long body after its changes: pieces of the original, and the new bytes between them."""

    __slots__ = ("_size", "buffers")

    def __init__(self, buffers: list[bytes | memoryview]) -> None:
        self.buffers = buffers
        """Buffers to be sent one after the other."""
        self._size = sum(map(len, buffers))

    def __len__(self) -> int:
        return self._size

    def __radd__(self, before: bytes) -> bytes:
        """Return a copy in one piece, after other bytes."""
        return before + bytes(self)

    def __bytes__(self) -> bytes:
        """Return a copy in one piece."""
        return b"".join(self.buffers)


def splice(body: bytes, cuts: Iterable[Cut]) -> bytes | Pieces:
    """Return the body with cuts applied, which must not overlap; without cuts the same object."""
    ordered = sorted(cuts)
    if not ordered:
        return body
    long = len(body) > LONG_BYTES
    whole = memoryview(body) if long else body
    pieces: list[bytes | memoryview] = []
    at = 0
    for start, end, new in ordered:
        pieces += (whole[at:start], new)
        at = end
    pieces.append(whole[at:])
    return Pieces(pieces) if long else b"".join(pieces)


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
