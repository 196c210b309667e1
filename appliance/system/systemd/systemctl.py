"""Client of systemctl, for apply: a root program that runs rarely, also where systemd does not run."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from appliance.model.errors import UnitError
from appliance.model.names import GATEWAY_UNIT, SUPERVISOR_UNIT, profile_of

_BACKENDS: Final = "appliance-backend-*.service"
_IDLE: Final = ("inactive", "failed")
_WANTED: Final = ("active", "failed")
"""States of a socket unit that was not stopped."""
_TIMEOUT_S: Final = 60
_PROPERTIES: Final = "Id,ActiveState,NeedDaemonReload"


class Systemctl:
    """Client of PID 1 through systemctl."""

    def __init__(self, booted: Path = Path("/run/systemd/system")) -> None:
        self._booted = booted

    def is_running(self) -> bool:
        """Tell whether systemd is PID 1 here (sd_booted(3)); False while an image is built."""
        return self._booted.is_dir()

    def version(self) -> int:
        """Return the major version of the installed systemd; 0: unknown."""
        match = re.match(r"systemd (\d+)", _run("--version", check=False))
        return int(match.group(1)) if match else 0

    def backends(self) -> Mapping[str, Mapping[str, str]]:
        """Return the `_PROPERTIES` of loaded backend units by profile. Raises `UnitError`."""
        if not self.is_running():
            return {}
        text = _run("show", f"--property={_PROPERTIES}", _BACKENDS)
        units = (dict(_assignments(block)) for block in text.split("\n\n"))
        return {name: u for u in units if (name := profile_of(u.get("Id", ""))) is not None}

    def daemon_reload(self) -> bool:
        """Have systemd read its units again; False: systemd is not running. Raises `UnitError`."""
        if self.is_running():
            _run("daemon-reload")
        return self.is_running()

    def reload_supervisor(self) -> None:
        """Have the supervisor, if it runs, read the manifest again.

        Never fails: a supervisor that cannot be reloaded notices the change by itself.
        """
        self._reload(SUPERVISOR_UNIT)

    def reload_gateway(self) -> None:
        """Have the gateway, if it runs, read its configuration again; never fails.

        The gateway hands over to a new process, and refuses no connection meanwhile.
        """
        self._reload(GATEWAY_UNIT)

    def reopen(self, socket_unit: str, service_unit: str) -> bool:
        """Have a socket unit that is in use listen where it now says; never fails.

        Its service ends, because systemd starts no socket unit whose service runs.

        Returns:
            Whether it listens; also True where it is not wanted.
        """
        if not self.is_running() or self._state(socket_unit) not in _WANTED:
            return True
        _run("stop", socket_unit, service_unit, check=False)
        _run("start", socket_unit, check=False)
        return self._state(socket_unit) == "active"

    def restart_if_running(self, unit: str) -> None:
        """Restart a unit, if it runs; never fails."""
        if self.is_running():
            _run("try-restart", unit, check=False)

    def is_active(self, unit: str) -> bool:
        """Tell whether a unit runs or starts; False also where systemd does not tell."""
        return self.is_running() and self._state(unit) in {"active", "activating", "reloading"}

    def is_enabled(self, unit: str) -> bool:
        """Tell whether a boot starts a unit by itself; False also where systemd does not tell."""
        state = _run("is-enabled", unit, check=False) if self.is_running() else ""
        return state.strip() in {"enabled", "enabled-runtime"}

    def _reload(self, unit: str) -> None:
        if self.is_running() and self._state(unit) == "active":
            _run("--no-block", "reload", unit, check=False)

    def _state(self, unit: str) -> str:
        return _run("is-active", unit, check=False).strip()


def running(backends: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
    """Return the profiles among `Systemctl.backends` that are not idle."""
    return frozenset(n for n, unit in backends.items() if unit.get("ActiveState") not in _IDLE)


def stale(backends: Mapping[str, Mapping[str, str]]) -> bool:
    """Tell whether a unit file or a profile is newer than what systemd has read."""
    return any(unit.get("NeedDaemonReload") == "yes" for unit in backends.values())


def _assignments(block: str) -> Iterator[tuple[str, str]]:
    for line in block.splitlines():
        key, _, value = line.partition("=")
        yield key, value


def _run(*arguments: str, check: bool = True) -> str:
    command = ["systemctl", *arguments]
    try:
        done = subprocess.run(  # noqa: S603  fixed words, no shell
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if not check:
            return ""
        raise UnitError(f"{' '.join(command)}: {error}") from error
    if check and done.returncode != 0:
        raise UnitError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
