"""Checks whether a model's files exist and are whole, remembered while the files do not change."""

import stat
from pathlib import Path
from typing import Final

from appliance.adapters.model_files.bounded import HeaderError
from appliance.adapters.model_files.locate import gguf_files, main_file
from appliance.adapters.model_files.reading import read_model
from appliance.domain.model_headers import Fault, ModelReference, Unread

_Stamp = tuple[tuple[str, int, int, int], ...]
_MOST_KEPT: Final = 64


class ModelChecks:
    """Checks of models, remembered while their files do not change. Safe between threads."""

    def __init__(self) -> None:
        self._known: dict[ModelReference, tuple[_Stamp, Unread | None]] = {}

    def fault(self, reference: ModelReference) -> Unread | None:
        """Return the fault of a model; None: none that can be seen. Never raises."""
        stamp = _stamp(reference)
        known = self._known.get(reference)
        if stamp is not None and known is not None and known[0] == stamp:
            return known[1]
        found = read_model(reference)
        fault = found if isinstance(found, Unread) else None
        if fault is not None and fault.fault is Fault.UNREADABLE:
            fault = None  # not readable for this process, or a format that only the engine knows
        if stamp is not None:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[reference] = (stamp, fault)
        return fault


def _stamp(reference: ModelReference) -> _Stamp | None:
    """Return what changes with the files of a model; None: they cannot be read."""
    try:
        first = main_file(reference.model, reference.path, gguf=reference.gguf)
        files = sorted(first.iterdir()) if first.is_dir() else gguf_files(first)
        return tuple(_mark(path) for path in files)
    except (OSError, HeaderError, ValueError):
        return None


def _mark(path: Path) -> tuple[str, int, int, int]:
    status = path.stat()
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return path.name, size, status.st_mtime_ns, status.st_ino
