"""Changes of the targets of alerts, by root: the file, the names for others, and the notifier.

The file is written first, the names after it, and the notifier is told last, so that what was interrupted
is completed by the next command of `appliance target`.
"""

from pathlib import Path
from typing import Final, Protocol

from appliance.model.errors import ApplianceError, SettingsError
from appliance.model.names import NOTIFIER_UNIT
from appliance.model.targets import MOST_TARGETS, Target, Targets
from appliance.system.files.durable import read_regular, write_file
from appliance.system.files.regular import read_small_file
from appliance.system.target_names import target_names_text
from appliance.system.targets_file import parse_targets, standing_of
from appliance.system.toml.editing import with_heartbeat, with_target, without_target
from appliance.system.toml.file import MAX_BYTES, FaultyFileError, fault_lines

_PRIVATE: Final = 0o600


class TargetError(ApplianceError):
    """Target that cannot be added, or does not exist."""


class UnitRestarter(Protocol):
    """Service manager, as far as changes of the targets need it."""

    def restart_if_running(self, unit: str) -> None:
        """Restart a unit that runs; never fails."""


class TargetDesk:
    """Place where the targets are changed.

    Args:
        path: The file of the targets.
        names: The file of their names.
        systemd: The service manager.
    """

    def __init__(self, path: Path, names: Path, systemd: UnitRestarter) -> None:
        self._path = path
        self._names = names
        self._systemd = systemd

    def targets(self) -> Targets:
        """Return the targets, and have everybody know them who does not yet.

        Raises:
            SettingsError: the file has faults, or may not be read; no value of it is shown.
            StoreError: the names cannot be written.
        """
        targets = self._parsed(self._text())
        self._announce(targets)
        return targets

    def add(self, target: Target) -> None:
        """Add a target. Raises `TargetError`, and as `targets`."""
        text = self._text()
        there = self._parsed(text).targets
        if any(one.name == target.name for one in there):
            raise TargetError(f"there is a target {target.name}: appliance target rm {target.name}")
        if len(there) >= MOST_TARGETS:
            raise TargetError(f"{MOST_TARGETS} targets are the most")
        self._write(with_target(text, target))

    def remove(self, name: str) -> None:
        """Remove a target. Raises `TargetError`, and as `targets`."""
        text = self._text()
        if all(one.name != name for one in self._parsed(text).targets):
            raise TargetError(f"there is no target {name}: appliance target ls")
        self._write(without_target(text, name))

    def set_heartbeat(self, url: str) -> None:
        """Set the address of the outside watch; empty: none. Raises as `targets`."""
        self._write(with_heartbeat(self._text(), url))

    def _text(self) -> str:
        try:
            return read_small_file(self._path, MAX_BYTES).decode()
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError:
            raise SettingsError(f"{self._path} is not UTF-8 text: save it as UTF-8") from None
        except OSError as error:
            raise SettingsError(f"{self._path} cannot be read: {error.strerror}") from error

    def _parsed(self, text: str) -> Targets:
        try:
            return parse_targets(text.encode())
        except FaultyFileError as error:
            raise SettingsError(fault_lines(str(self._path), error.faults)) from error

    def _write(self, text: str) -> None:
        targets = self._parsed(text)
        write_file(self._path, text, mode=_PRIVATE)
        self._announce(targets, changed=True)

    def _announce(self, targets: Targets, *, changed: bool = False) -> None:
        self._names.parent.mkdir(parents=True, exist_ok=True)
        text = target_names_text([*map(standing_of, targets.targets)])
        if read_regular(self._names) != text:
            write_file(self._names, text)
            changed = True
        # The notifier read its credential when it started.
        if changed or _changed_s(self._path) > _changed_s(self._names):
            self._names.touch()
            self._systemd.restart_if_running(NOTIFIER_UNIT)


def _changed_s(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0
