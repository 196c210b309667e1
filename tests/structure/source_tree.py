"""The Python files of a package, with their syntax trees and lines."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One Python file."""

    name: str
    """Dotted, as it is imported."""
    text: str

    @cached_property
    def syntax(self) -> ast.Module:
        """The parsed text."""
        return ast.parse(self.text)

    @cached_property
    def classes(self) -> Mapping[str, ast.ClassDef]:
        """Classes by name, inner ones too."""
        return {n.name: n for n in ast.walk(self.syntax) if isinstance(n, ast.ClassDef)}

    @property
    def is_module(self) -> bool:
        """Whether it holds more than a docstring."""
        return not all(map(_is_text, self.syntax.body))

    @property
    def lines(self) -> int:
        """Return the number of all lines."""
        return len(self.text.splitlines())

    @property
    def code_lines(self) -> int:
        """Lines that are not blank, a comment, or part of a docstring."""
        texts, docstrings = set[int](), set[int]()
        for node in ast.walk(self.syntax):
            if isinstance(node, ast.stmt) and _is_text(node):
                docstrings |= _lines_of(node)
            elif isinstance(node, ast.Constant | ast.JoinedStr):
                texts |= _lines_of(node)
        return sum(
            bool(line.strip())
            and number not in docstrings
            and (number in texts or not line.lstrip().startswith("#"))
            for number, line in enumerate(self.text.splitlines(), start=1)
        )


@dataclass(frozen=True, kw_only=True)
class SourceTree:
    """The files of one or several packages."""

    files: Sequence[SourceFile]

    @property
    def modules(self) -> Sequence[SourceFile]:
        """Files with code."""
        return [file for file in self.files if file.is_module]

    @property
    def lines(self) -> int:
        """Lines of all files."""
        return sum(file.lines for file in self.files)

    @property
    def code_lines(self) -> int:
        """Code lines of all files."""
        return sum(file.code_lines for file in self.files)


def read_tree(package: Path) -> SourceTree:
    """Every Python file below the folder of a package."""
    return SourceTree(files=[SourceFile(name=n, text=t) for n, t in _files(package)])


def _files(package: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, path.read_text("utf-8")


def _is_text(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case _:
            return False


def _lines_of(node: ast.stmt | ast.expr) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
