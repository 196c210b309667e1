"""Classes, what they inherit, and which protocols they implement."""

import ast
from collections.abc import Iterator, Mapping, Sequence

from tests.structure.source_tree import SourceFile, SourceTree

_Members = Mapping[str, frozenset[str] | None]
"""Members by name: parameters of a method or property without the first one, None for an
attribute."""


def ancestors(node: ast.ClassDef, file: SourceFile, tree: SourceTree) -> Sequence[ast.ClassDef]:
    """Return all classes of the tree that a class in `file` inherits from."""
    return [base for base, _ in _ancestors(node, file, tree)]


def with_one_implementation(tree: SourceTree, others: SourceTree) -> Sequence[str]:
    """Protocols of a tree, as ``module.Protocol``, that one class of it or of `others` implements."""
    everything = SourceTree(files=[*tree.files, *others.files])
    classes = [(node, file) for file in everything.files for node in file.classes.values()]
    members = [(c, _members(c, file, everything)) for c, file in classes if not _is_protocol(c)]
    found = []
    for file in tree.files:
        for node in filter(_is_protocol, file.classes.values()):
            wanted = _members(node, file, everything)
            implementations = [
                c
                for c, own in members
                if all(name in own and _fits(own[name], wanted[name]) for name in wanted)
            ]
            if wanted and len(implementations) == 1:
                found.append(f"{file.name}.{node.name}")
    return found


def _ancestors(
    node: ast.ClassDef, file: SourceFile, tree: SourceTree
) -> Iterator[tuple[ast.ClassDef, SourceFile]]:
    for name in _base_names(node):
        module, plain = file.imports.get(name, (file.name, name))
        home = tree.by_name.get(module)
        base = home.classes.get(plain) if home else None
        if home is not None and base is not None and base is not node:
            yield base, home
            yield from _ancestors(base, home, tree)


def _base_names(node: ast.ClassDef) -> Sequence[str]:
    """Without those of other packages' modules, such as ``asyncio.Protocol``."""
    plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return [base.id for base in plain if isinstance(base, ast.Name)]


def _is_protocol(node: ast.ClassDef) -> bool:
    return "Protocol" in _base_names(node)


def _members(node: ast.ClassDef, file: SourceFile, tree: SourceTree) -> _Members:
    """Return the members of a class, inherited ones included, without special methods."""
    found: dict[str, frozenset[str] | None] = {}
    for one in (*reversed(ancestors(node, file, tree)), node):
        for part in one.body:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                found[part.name] = _parameters(part)
                found |= dict.fromkeys(_assigned(part))
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                found[part.target.id] = None
    return {name: member for name, member in found.items() if name[:2] != "__"}


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    given = function.args
    return frozenset(one.arg for one in (*given.args[1:], *given.kwonlyargs))


def _assigned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Attributes that a method sets."""
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def _fits(own: frozenset[str] | None, wanted: frozenset[str] | None) -> bool:
    """Whether a member can be used as the protocol's is."""
    return own is None or wanted is None or wanted <= own
