"""References to private functions and methods."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.structure.inheritance import ancestors
from tests.structure.source_tree import SourceFile, SourceTree

_ONCE = 1


class _Attribute(NamedTuple):
    """One ``owner.name`` in the tree."""

    file: SourceFile
    classes: tuple[ast.ClassDef, ...]
    """Around it, from the innermost one."""


def used_once(tree: SourceTree) -> Sequence[str]:
    """Private functions with one reference, as ``module.function`` or ``module.Class.method``."""
    functions, methods = _function_uses(tree), _method_uses(tree)
    return [name for name, uses in (*functions, *methods) if uses == _ONCE]


def _function_uses(tree: SourceTree) -> Iterator[tuple[str, int]]:
    imported = Counter(origin for file in tree.files for origin in _imported(file))
    for file in tree.files:
        names = Counter(n.id for n in ast.walk(file.syntax) if isinstance(n, ast.Name))
        for name in _private_functions(file.syntax.body):
            yield f"{file.name}.{name}", names[name] + imported[file.name, name]


def _method_uses(tree: SourceTree) -> Iterator[tuple[str, int]]:
    attributes: Mapping[str, list[_Attribute]] = defaultdict(list)
    for file in tree.files:
        for name, attribute in _attributes(file, file.syntax, ()):
            attributes[name].append(attribute)
    for file in tree.files:
        for owner in file.classes.values():
            for name in _private_functions(owner.body):
                uses = [a for a in attributes[name] if _belongs(a, name, owner, file, tree)]
                yield f"{file.name}.{owner.name}.{name}", len(uses)


def _private_functions(body: Sequence[ast.stmt]) -> Sequence[str]:
    names = [n.name for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sorted({name for name in names if name[:1] == "_" and name[:2] != "__"})


def _imported(file: SourceFile) -> Iterator[tuple[str, str]]:
    """Module and name of everything that a file takes from other modules, each time it does."""
    for node in ast.walk(file.syntax):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield from ((module, alias.name) for alias in names)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in file.imports:
                yield ".".join(file.imports[owner]), name
            case _:
                pass


def _attributes(
    file: SourceFile, node: ast.AST, classes: tuple[ast.ClassDef, ...]
) -> Iterator[tuple[str, _Attribute]]:
    if isinstance(node, ast.Attribute):
        yield node.attr, _Attribute(file, classes)
    inner = (node, *classes) if isinstance(node, ast.ClassDef) else classes
    for child in ast.iter_child_nodes(node):
        yield from _attributes(file, child, inner)


def _belongs(
    attribute: _Attribute, name: str, owner: ast.ClassDef, file: SourceFile, tree: SourceTree
) -> bool:
    """Whether an attribute called `name` is the method of `owner`, a class in `file`."""
    for around in attribute.classes:
        if around is owner or owner in ancestors(around, attribute.file, tree):
            return True
        if name in _private_functions(around.body):
            return False
    return attribute.file is file
