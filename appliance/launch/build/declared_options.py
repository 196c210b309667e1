"""Options that Python sources declare for argparse, found without importing them.

What vLLM and SGLang write (vLLM 0.33.0, SGLang 0.5.23), and what an option is in it:

``group.add_argument("--uds", "-u", …)``
    names in a call, each; with ``action=BooleanOptionalAction`` ``--no-uds``, too
``group.add_argument("--eager", **kwargs["eager"])`` in a class with a field ``eager: bool``
    the same as with ``BooleanOptionalAction``
``group.add_argument(f"--{key}", **value)`` in a class
    each field of the class and of those that inherit it
``tp_size: A[int, Arg(help=…, cli_name="--tp", aliases=["--tensor"], no_cli=False)]``
    the field, or its ``cli_name``, and the aliases; without a text or ``Arg`` it is none
``_inverse_prefixes = {"--enable-": "--disable-"}`` in an action
    every option that has ``--no-…`` and begins so has the other beginning as well

A source that this Python cannot parse is read by patterns, which find more than there is.
"""

from __future__ import annotations

import ast
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_LITERAL = re.compile(r"""["'](--[a-z][a-z0-9-]{0,63})["']""", re.ASCII)
_FIELD = re.compile(r"^    ([a-z][a-z0-9_]{0,63}) ?:", re.ASCII | re.MULTILINE)
_NAME = re.compile(r"--?[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_BOOLEAN = "BooleanOptionalAction"
_MARKS = frozenset({"A", "Annotated"})
_NO = "--no-"


class DeclaredOptions:
    """Options in some sources."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._found: dict[str, None] = {}
        self._switches: dict[str, None] = {}
        self._inverses: dict[str, str] = {}
        for source in sources:
            self._read(source)

    def names(self) -> Iterator[str]:
        """Yield the names, each once."""
        yield from self._found
        for name in self._switches:
            yield f"{_NO}{name.removeprefix('--')}"
            for beginning, other in self._inverses.items():
                if name.startswith(beginning):
                    yield other + name.removeprefix(beginning)

    def _read(self, source: str) -> None:
        try:
            module = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._add(match[1] for match in _LITERAL.finditer(source))
            self._add(map(_option, (match[1] for match in _FIELD.finditer(source))))
            return
        registering: set[str] = set()
        in_classes: set[ast.Call] = set()
        for one in module.body:
            if isinstance(one, ast.ClassDef):
                in_classes.update(self._read_class(one, registering))
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and node not in in_classes:
                self._read_call(node, {})

    def _read_class(self, one: ast.ClassDef, registering: set[str]) -> Iterator[ast.Call]:
        """Read a class; yields the calls in it."""
        fields = {
            each.target.id: each.annotation
            for each in one.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        calls = [node for node in ast.walk(one) if isinstance(node, ast.Call)]
        bases = {base.id for base in one.bases if isinstance(base, ast.Name)}
        if bases & registering or any(_names_by_fields(call) for call in calls):
            registering.add(one.name)
            for name, annotation in fields.items():
                self._add((_option(name),), is_switch=_is_switch(annotation))
        for name, annotation in fields.items():
            self._read_marks(name, annotation)
        for call in calls:
            self._read_call(call, fields)
        for each in one.body:
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.Dict):
                self._inverses |= _pairs(each.value)
        yield from calls

    def _read_call(self, call: ast.Call, fields: dict[str, ast.expr]) -> None:
        if not _adds_argument(call):
            return
        names = _texts(call.args)
        field = next((name for name in names if name.startswith("--")), "")[2:].replace("-", "_")
        takes_kwargs = any(keyword.arg is None for keyword in call.keywords)
        is_switch = takes_kwargs and field in fields and _is_switch(fields[field])
        self._add(names, is_switch=is_switch or _is_boolean(call))

    def _read_marks(self, name: str, annotation: ast.expr) -> None:
        """Read a field such as ``A[int, Arg(help="…")]``."""
        if not isinstance(annotation, ast.Subscript) or _name(annotation.value) not in _MARKS:
            return
        marks = annotation.slice.elts[1:] if isinstance(annotation.slice, ast.Tuple) else []
        for mark in marks:
            if isinstance(mark, ast.Call) and _name(mark.func) == "Arg":
                given = {keyword.arg: keyword.value for keyword in mark.keywords}
                hidden = given.get("no_cli")
                if isinstance(hidden, ast.Constant) and hidden.value:
                    return
                names = _texts([given[key] for key in ("cli_name",) if key in given])
                aliases = given.get("aliases")
                more = _texts(aliases.elts) if isinstance(aliases, (ast.List, ast.Tuple)) else []
                self._add([*(names or [_option(name)]), *more], is_switch=_is_boolean(mark))
                return
            if isinstance(mark, ast.JoinedStr) or _text(mark) is not None:
                self._add((_option(name),))
                return

    def _add(self, names: Iterable[str], *, is_switch: bool = False) -> None:
        for name in names:
            if _NAME.fullmatch(name):
                self._found[name] = None
                if is_switch and name.startswith("--"):
                    self._switches[name] = None


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _adds_argument(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"


def _names_by_fields(call: ast.Call) -> bool:
    """Tell whether a call makes options of a class's fields, whose names it computes."""
    computed = (one.values[0] for one in call.args if isinstance(one, ast.JoinedStr) and one.values)
    return _adds_argument(call) and any(_text(begun) == "--" for begun in computed)


def _is_switch(annotation: ast.expr) -> bool:
    """Tell whether a field is true or false, or neither yet."""
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return "bool" in names and "str" not in names


def _is_boolean(call: ast.Call) -> bool:
    return any(one.arg == "action" and _name(one.value) == _BOOLEAN for one in call.keywords)


def _pairs(value: ast.Dict) -> dict[str, str]:
    """Return the beginnings of options by those that mean the opposite."""
    pairs = zip(map(_text, value.keys), map(_text, value.values), strict=True)
    return {a: b for a, b in pairs if a and b and a.startswith("--") and b.startswith("--")}


def _name(node: ast.expr) -> str:
    """Return the last part of a name, such as ``argparse.Action``; empty: another expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _texts(nodes: Sequence[ast.expr]) -> list[str]:
    return [text for text in map(_text, nodes) if text is not None]


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
