"""Where this box keeps things, found without importing pydantic.

The order of `appliance.settings`, for the few paths that a fast verb may need: the environment,
then the settings file, then the default.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.domain.errors import SettingsError
from appliance.domain.names import unit_of

_DEFAULTS: Final[Mapping[str, str]] = {
    "control_socket": "/run/appliance/control.sock",
    "state_dir": "/var/lib/appliance",
    "applied_dir": "/var/lib/appliance-applied",
    "profiles_dir": "/etc/appliance/profiles",
    "unit_dir": "/etc/systemd/system",
    "gate_dir": "/run/appliance-gate",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Files and directories of one installation."""

    control_socket: str
    state_dir: Path
    applied_dir: Path
    profiles_dir: Path
    unit_dir: Path
    gate_dir: Path

    @property
    def manifest(self) -> Path:
        """The applied profiles."""
        return self.applied_dir / "manifest.json"

    def unit_file(self, name: str) -> Path:
        """The installed unit of profile `name`."""
        return self.unit_dir / unit_of(name)


def settings_path() -> Path:
    """The settings file."""
    return Path(os.environ.get("APPLIANCE_SETTINGS") or "/etc/appliance/appliance.toml")


def find_places(*, socket: str | None = None) -> Places:
    """The places of this box; `socket`: the control socket given on the command line.

    Raises:
        SettingsError: the settings file is there but is not TOML.
    """
    table = _settings_table()
    found = {
        key: os.environ.get(f"APPLIANCE_{key.upper()}") or str(table.get(key, default))
        for key, default in _DEFAULTS.items()
    }
    return Places(
        control_socket=socket or found["control_socket"],
        state_dir=Path(found["state_dir"]),
        applied_dir=Path(found["applied_dir"]),
        profiles_dir=Path(found["profiles_dir"]),
        unit_dir=Path(found["unit_dir"]),
        gate_dir=Path(found["gate_dir"]),
    )


def _settings_table() -> Mapping[str, object]:
    path = settings_path()
    try:
        raw = path.read_bytes()
    except OSError:
        return {}
    if not any(line.strip() and not line.lstrip().startswith(b"#") for line in raw.splitlines()):
        return {}
    import tomllib  # noqa: PLC0415 - 4 ms that most boxes, having only comments there, save

    try:
        return tomllib.loads(raw.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: {error}: appliance config validate") from error
