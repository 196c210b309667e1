"""Attributes of the embedded engine's parameters that its program sets, against those of the installed wheel."""

import ast
from collections.abc import Iterator
from pathlib import Path

from appliance.launch import embedded


def set_parameters() -> frozenset[str]:
    """Return the attributes, with dots where one has others: those assigned, and those in the table."""
    module = ast.parse(Path(embedded.__file__).read_text(encoding="utf-8"))
    return frozenset(
        name for node in ast.walk(module) if isinstance(node, ast.Assign) for name in _names(node)
    )


def _names(node: ast.Assign) -> Iterator[str]:
    for target in node.targets:
        path = ast.unparse(target)
        if path.startswith("parameters."):
            yield path.removeprefix("parameters.")
        if path == "settings" and isinstance(node.value, ast.Dict):
            yield from (str(key.value) for key in node.value.keys if isinstance(key, ast.Constant))


def missing_parameters() -> tuple[str, ...]:
    """Return the attributes that the wheel does not have."""
    import xllamacpp  # noqa: PLC0415 - 100 MB

    parameters = xllamacpp.CommonParams()
    return tuple(sorted(name for name in set_parameters() if not _has(parameters, name)))


def _has(parameters: object, path: str) -> bool:
    found = parameters
    for name in path.split("."):
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True
