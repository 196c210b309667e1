"""Versions of packages of this Python, without importing them or `importlib.metadata`."""

import importlib.util
from pathlib import Path
from typing import Final

_SUFFIX: Final = ".dist-info"


def package_version(module: str) -> str | None:
    """Return the version of the wheel that has a top-level module of the same name.

    None: the module or its metadata are not installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    beginning = f"{module}-"
    found = Path(spec.origin).parent.parent.glob(f"{beginning}*{_SUFFIX}")
    names = sorted(path.name for path in found)
    return names[0].removeprefix(beginning).removesuffix(_SUFFIX) if names else None
