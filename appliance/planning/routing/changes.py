"""What a profile changes in the requests that it gets, compiled for splicing.

Taken out first, then set, the shorter keys first. Dots in a key reach into objects, so a name
that has a dot in it cannot be changed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_Path = tuple[str, ...]


class _Gone:
    """A parameter that is taken out."""


_GONE: Final = _Gone()

_Tree = dict[str, object]
"""By key: its value, `_GONE`, or what is `_Inside`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inside:
    tree: _Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What happens to one member of an object."""

    value: bytes = b""
    """The JSON text of what it becomes; of one that changes inside, what it becomes if it is no
    object. Empty: it is taken out, or, of the latter, stays what it is."""
    member: bytes = b""
    """What is put in where it is absent, name and all; empty: nothing."""
    inside: "Edits | None" = None
    """What changes inside of it; None: nothing."""


Edits = Mapping[str, Edit]
"""By key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Compiled changes. Make them once for a profile: requests only look things up in them."""

    model: bytes | None = None
    """The JSON text of the engine's name for its model; None: it stays as it is."""
    edits: Edits = field(default_factory=dict)
    """All of them, `model` too."""
    others: bool = False
    """Whether anything but `model` changes."""
    fields: Mapping[str, str | None] = field(default_factory=dict)
    """The same for a form, which is flat: the text by name; None: taken out."""


def change(*, model: str | None, set_: Mapping[str, object], strip: Sequence[str]) -> Changes:
    """Compiles changes.

    Args:
        model: The engine's name for its model; None: it stays as the client wrote it.
        set_: Values by key, whatever the client says.
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
        _plant(tree, path, value)
    return Changes(
        model=None if model is None else _text(model).encode(),
        edits=_edits(tree),
        others=others,
        fields={path[0]: _field(value) for path, value in wanted.items() if len(path) == 1},
    )


def _edits(tree: _Tree) -> Edits:
    return {key: _edit(key, inside) for key, inside in tree.items()}


def _edit(key: str, found: object) -> Edit:
    inside = None
    if isinstance(found, _Inside):
        inside = _edits(found.tree)
        members = [edit.member for edit in inside.values() if edit.member]
        value = b"{%b}" % b",".join(members) if members else b""
    else:
        value = b"" if found is _GONE else _text(found).encode()
    member = b"%b:%b" % (_text(key).encode(), value) if value else b""
    return Edit(value=value, member=member, inside=inside)


def _settled(set_: Mapping[str, object], strip: Sequence[str]) -> dict[_Path, object]:
    """What is wanted in the end, by path; a later one replaces those that lead through it."""
    wanted: dict[_Path, object] = {}
    for path in sorted((tuple(key.split(".")) for key in strip), key=len):
        if _above(wanted, path) is None:
            wanted[path] = _GONE
    for path, value in sorted(((tuple(k.split(".")), v) for k, v in set_.items()), key=_depth):
        above = _above(wanted, path)
        if above is None:
            wanted[path] = value
        else:
            wanted[above] = _put(wanted[above], path[len(above) :], value)
    return wanted


def _depth(item: tuple[_Path, object]) -> int:
    return len(item[0])


def _above(wanted: Mapping[_Path, object], path: _Path) -> _Path | None:
    """The path itself, or one that leads to it, that is there already."""
    prefixes = (path[:length] for length in range(1, len(path) + 1))
    return next((prefix for prefix in prefixes if prefix in wanted), None)


def _put(base: object, path: _Path, value: object) -> object:
    """A value with another one put into it; what is no object becomes one."""
    if not path:
        return value
    old = dict(base) if isinstance(base, Mapping) else {}
    return old | {path[0]: _put(old.get(path[0]), path[1:], value)}


def _plant(tree: _Tree, path: _Path, value: object) -> None:
    for key in path[:-1]:
        inside = tree.setdefault(key, _Inside(tree={}))
        # Nothing that leads through this path comes behind it.
        assert isinstance(inside, _Inside)  # noqa: S101
        tree = inside.tree
    tree[path[-1]] = value


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _field(value: object) -> str | None:
    if value is _GONE:
        return None
    return value if isinstance(value, str) else _text(value)
