"""Settings as the daemons have them: plain values, which a short child process reads.

Reading the settings takes pydantic, pydantic-settings and tomlkit, about 10 MiB for as long as a
process lives. `appliance.settings_printer` reads them in a child and prints them; a daemon imports
none of it. A daemon reads its settings once, at its start.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from appliance.domain.errors import SettingsError
from appliance.protocol.json_dataclasses import from_json

PRINTER: Final = (sys.executable, "-I", "-m", "appliance.settings_printer")
_TIMEOUT_S: Final = 45.0
"""Less than the TimeoutStartSec= of the daemons; a busy box takes 7 s."""
_MOST_ERROR_CHARACTERS: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySnapshot:
    """Settings ``[memory]``."""

    margin: int | None
    """Bytes to keep free on each claimed GPU; None: the gate's own margin."""
    sample_every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSnapshot:
    """Settings ``[health]``; times are seconds."""

    enabled: bool
    probe_every: float
    silent_after: float
    canary_every: float
    state_dir: str
    trial_speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSnapshot:
    """Settings that the supervisor and the health agent use, as `appliance.settings` explains them.

    Paths are text.
    """

    state_dir: str
    applied_dir: str
    unit_dir: str
    runtime_dir: str
    gate_dir: str
    look_every_s: float
    keep_operations: int
    log_level: str
    memory: MemorySnapshot
    health: HealthSnapshot
    gateway_socket: str
    jobs_socket: str
    status_socket: str
    lane_socket: str


def take_snapshot(printer: Sequence[str] = PRINTER) -> SettingsSnapshot:
    """Read the settings of this box in a child process.

    Args:
        printer: Command that prints them, or its error with a status that is not 0.

    Raises:
        SettingsError: one line for everything that is wrong.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the command is ours
            printer,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SettingsError(f"the settings cannot be read: {_why(error)}") from error
    if done.returncode != 0:
        text = done.stderr.strip()[-_MOST_ERROR_CHARACTERS:]
        raise SettingsError(
            text or f"the settings cannot be read: their reader ended with {done.returncode}"
        )
    try:
        return snapshot_of(done.stdout)
    except ValueError as error:
        raise SettingsError(f"the settings cannot be read: their reader printed {error}") from error


def snapshot_of(document: str) -> SettingsSnapshot:
    """Return the snapshot in a printed document. Raises `ValueError`."""
    return from_json(SettingsSnapshot, json.loads(document))


def _why(error: OSError | subprocess.TimeoutExpired) -> str:
    if isinstance(error, OSError):
        return error.strerror or "no child process"
    return f"no answer in {_TIMEOUT_S:.0f} s"
