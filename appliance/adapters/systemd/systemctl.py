"""systemctl, for apply: a root program that runs rarely, also where systemd does not run."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from appliance.domain.errors import UnitError
from appliance.domain.names import GATEWAY_UNIT, SUPERVISOR_UNIT, profile_of

_BACKENDS: Final = "appliance-backend-*.service"
_IDLE: Final = ("inactive", "failed")
_TIMEOUT_S: Final = 60
_PROPERTIES: Final = "Id,ActiveState,NeedDaemonReload"


class Systemctl:
    """Asks and tells PID 1 through systemctl."""

    def __init__(self, booted: Path = Path("/run/systemd/system")) -> None:
        self._booted = booted

    def is_running(self) -> bool:
        """Whether systemd is PID 1 here (sd_booted(3)); not so while an image is made."""
        return self._booted.is_dir()

    def version(self) -> int:
        """The installed systemd's major version; 0: unknown."""
        match = re.match(r"systemd (\d+)", _run("--version", check=False))
        return int(match.group(1)) if match else 0

    def backends(self) -> Mapping[str, Mapping[str, str]]:
        """Loaded backend units by profile: `_PROPERTIES`. Raises `UnitError`."""
        if not self.is_running():
            return {}
        text = _run("show", f"--property={_PROPERTIES}", _BACKENDS)
        units = (dict(_assignments(block)) for block in text.split("\n\n"))
        return {name: u for u in units if (name := profile_of(u.get("Id", ""))) is not None}

    def daemon_reload(self) -> bool:
        """Make systemd read its units again; False: it does not run. Raises `UnitError`."""
        if self.is_running():
            _run("daemon-reload")
        return self.is_running()

    def reload_supervisor(self) -> None:
        """Tell the supervisor, if it runs, that other profiles are applied now.

        A supervisor that cannot be told notices by itself, so that this never fails.
        """
        self._reload(SUPERVISOR_UNIT)

    def reload_gateway(self) -> None:
        """Tell the gateway, if it runs, that it is configured otherwise now; never fails.

        It hands over to a new process of itself; nobody is refused meanwhile.
        """
        self._reload(GATEWAY_UNIT)

    def _reload(self, unit: str) -> None:
        if self.is_running() and _run("is-active", unit, check=False) == "active\n":
            _run("--no-block", "reload", unit, check=False)


def running(backends: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
    """The profiles among `Systemctl.backends` that are not idle."""
    return frozenset(n for n, unit in backends.items() if unit.get("ActiveState") not in _IDLE)


def stale(backends: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a unit file or a profile is newer than what systemd has read."""
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
