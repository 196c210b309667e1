"""Walks through the code that docs/explanation/walks.md describes, and the names in them."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

PAGE = Path("docs/explanation/walks.md")
_WALK = re.compile(r"^## (.+)$")
_HOP = re.compile(r"^\d+\. ")
_NAME = re.compile(r"`((?:[a-z_]+\.)+[A-Za-z_]+)`")


def walks(page: str) -> dict[str, list[str]]:
    """The hops of each section that has a numbered list, by its heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in page.splitlines():
        if match := _WALK.match(line):
            heading = match[1]
        elif _HOP.match(line):
            found.setdefault(heading, []).append(line)
    return found


def files_of(hops: Iterable[str], package: Path) -> list[str]:
    """Return the modules that hops name, each once, in the order of the walk."""
    names = [name for hop in hops for name in _NAME.findall(hop)]
    files = [name if _file(name, package).is_file() else name.rpartition(".")[0] for name in names]
    return list(dict.fromkeys(files))


def missing_names(hop: str, package: Path) -> Iterator[str]:
    """Names in a hop, `room.module.Name` or `room.module`, that are not in the package."""
    for name in _NAME.findall(hop):
        module, _, leaf = name.rpartition(".")
        if _file(name, package).is_file():
            continue
        source = _file(module, package)
        if not source.is_file() or leaf not in _defined(source):
            yield name


def _file(module: str, package: Path) -> Path:
    return package.joinpath(*module.split(".")).with_suffix(".py")


def _defined(source: Path) -> set[str]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.name for node in ast.parse(source.read_text("utf-8")).body if isinstance(node, kinds)
    }
