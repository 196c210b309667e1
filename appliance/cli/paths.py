"""Paths of this box, found without importing pydantic, or the settings' tables (27 ms of a status's 45).

The order of `appliance.settings.loader`, for the few paths that a quick verb may need: the environment,
then the settings file, then the default.
"""

from __future__ import annotations

import os

from appliance.model import paths
from appliance.model.errors import SettingsError
from appliance.model.record import Record
from appliance.system.files.regular import read_small_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Final

_DEFAULTS: Final = {
    "control_socket": paths.CONTROL_SOCKET,
    "state_dir": paths.STATE_DIR,
    "applied_dir": paths.APPLIED_DIR,
    "unit_dir": paths.UNIT_DIR,
    "gate_dir": paths.GATE_DIR,
}


_MOST_BYTES: Final = 256 << 10
"""Largest settings file in bytes."""


class Places(Record):
    """Files and directories of one installation."""

    control_socket: str
    state_dir: str
    applied_dir: str
    unit_dir: str
    gate_dir: str

    @property
    def health_socket(self) -> str:
        """Return the health agent's socket, which is always beside the supervisor's."""
        return _beside(self.control_socket, paths.HEALTH_SOCKET)

    @property
    def status_socket(self) -> str:
        """Return the supervisor's socket for processes that only look, which is beside the control socket."""
        return _beside(self.control_socket, paths.STATUS_SOCKET)


def _beside(path: str, other: str) -> str:
    """Return the file of the name of `other` in the directory of `path`."""
    folder, name = path.rpartition("/")[0], other.rpartition("/")[2]
    return f"{folder}/{name}" if folder or path.startswith("/") else name


def settings_path() -> str:
    return os.environ.get("APPLIANCE_SETTINGS") or paths.SETTINGS_FILE


def find_places(*, socket: str | None = None) -> Places:
    """Return the places of this box; `socket` is the control socket of the command line.

    Raises:
        SettingsError: the settings file may name one, and is not TOML.
    """
    table = _settings_table(_DEFAULTS)
    found = {
        key: os.environ.get(f"APPLIANCE_{key.upper()}") or str(table.get(key, default))
        for key, default in _DEFAULTS.items()
    }
    return Places(**(found | ({"control_socket": socket} if socket else {})))


def watch_names() -> Sequence[str]:
    """Return the names of the ``[[watch]]`` entries of the settings, as far as they are names.

    Raises:
        SettingsError: the settings file is there but is not TOML.
    """
    entries = _settings_table(["watch"]).get("watch")
    rows = entries if isinstance(entries, list) else []
    return [str(row["name"]) for row in rows if isinstance(row, dict) and "name" in row]


def _settings_table(keys: Iterable[str]) -> Mapping[str, object]:
    """Return the settings; empty if the file has none of the keys. A key that needs escapes counts as any."""
    path = settings_path()
    try:
        raw = read_small_file(path, _MOST_BYTES, follow_links=True)
    except OSError:
        return {}
    if b"\\" not in raw and not any(key.encode() in raw for key in keys):
        return {}
    # 11 ms that most boxes, whose paths are the usual ones, save.
    from appliance.system.toml.file import FaultyFileError, parse_document  # noqa: PLC0415

    try:
        return parse_document(raw).table
    except FaultyFileError as error:
        line = error.faults[0].line
        place = f"{path}:" if line is None else f"{path}:{line}:"
        raise SettingsError(f"{place} {error}: appliance config validate") from error
