"""Modules that one other module imports: often one idea in two files."""

import ast
from collections.abc import Iterator, Sequence

from tests.structure.source_tree import SourceFile, SourceTree


def with_one_importer(tree: SourceTree) -> Sequence[str]:
    """Return the modules of a tree that exactly one other module of it imports, whatever it takes of them."""
    importers: dict[str, set[str]] = {file.name: set() for file in tree.modules}
    for file in tree.files:
        for name in imported_names(file):
            if name in importers and name != file.name:
                importers[name].add(file.name)
    return [name for name, found in importers.items() if len(found) == 1]


def imported_names(file: SourceFile) -> Iterator[str]:
    """Yield the names that may be modules: of ``from a.b import c`` both ``a.b`` and ``a.b.c``."""
    for node in ast.walk(file.syntax):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case _:
                pass
