"""Classes that declare the same fields: one fact in two shapes."""

import ast
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from tests.structure.source_tree import SourceTree

LEAST_FIELDS: Final = 5
_SAME: Final = 0.8
"""Share of the smaller class's fields that the other one has too."""


class Pair(NamedTuple):
    """Two classes of one shape."""

    first: str
    second: str
    identical: bool
    """Both have the same fields, and no others."""

    def __str__(self) -> str:
        return f"{self.first} {'=' if self.identical else '~'} {self.second}"


def same_shape(tree: SourceTree) -> Sequence[Pair]:
    """Return the pairs of classes of at least five fields, of which four fifths have the same names.

    Fields are names with a type in the class's body. Those that are inherited are declared once,
    so they do not count, nor does a class whose fields narrow those of its base; constants of a class
    (``ClassVar``, ``Final``) and protocols do not either.
    """
    bases = {
        f"{file.name}.{name}": {ast.unparse(base) for base in node.bases}
        for file in tree.files
        for name, node in file.classes.items()
    }
    fields = {
        f"{file.name}.{name}": found
        for file in tree.files
        for name, node in file.classes.items()
        if len(found := set(_fields(node))) >= LEAST_FIELDS
    }
    return [
        Pair(one, other, fields[one] == fields[other])
        for one, other in combinations(sorted(fields), 2)
        if _overlap(fields[one], fields[other]) >= _SAME
        and not _is_base(one, bases[other])
        and not _is_base(other, bases[one])
    ]


def _fields(node: ast.ClassDef) -> Iterator[str]:
    if any(ast.unparse(base).startswith("Protocol") for base in node.bases):
        return
    for part in node.body:
        match part:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                if not ast.unparse(kind).startswith(("ClassVar", "Final")):
                    yield name
            case _:
                pass


def _is_base(name: str, bases: set[str]) -> bool:
    return name.rpartition(".")[2] in bases


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / min(len(one), len(other))
