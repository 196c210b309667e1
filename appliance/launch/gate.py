"""Gate before every start: refuses until the claim, its memory and its port are really free.

Runs as ``ExecCondition=+`` of a backend's unit, as root, with everything it needs in its
arguments. Exit statuses, as systemd.service(5) reads them:

=====  ============================================================================
0      admitted
75     refused: a rival holds a lease, or the machine is too small; skipped without restart
255    late: memory or port have not come back; the unit failed, ``Restart=`` applies
64     the command line is wrong; skipped without restart
=====  ============================================================================
"""

from __future__ import annotations

import os
import time

from appliance.launch import leases, obstacles
from appliance.launch.port import PORT_REUSE, PortWatch, last_program, record_program
from appliance.launch.program import ERROR, EX_USAGE, WARNING, Options, UsageError, run_program, say
from appliance.launch.release import Release
from appliance.model.names import is_profile_name, unit_of
from appliance.model.paths import GATE_DIR, LEASE_DIR
from appliance.switch.memory import peak
from appliance.switch.memory.requirement import GATE_FLAGS, GATE_SWITCHES, requirement_in
from appliance.system.files.regular import (
    UntrustedFileError,
    read_untrusted_text,
    replace_volatile,
)
from appliance.wire import gate_verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from appliance.launch.obstacles import Obstacle
    from appliance.switch.memory.requirement import MemoryRequirement

ADMITTED = 0
REFUSED = 75
LATE = 255

_FLAGS = (
    "name",
    "lease",
    "rival",
    *GATE_FLAGS,
    "observed",
    "fingerprint",
    "port",
    "port-program",
    "port-reuse",
    "deadline-s",
    # Set by tests only; the rendered units leave the defaults.
    "lease-dir",
    "gate-dir",
    "systemctl",
)
_DEADLINE_S = 60.0
_MAX_PORT = 65535
_STATUS_EVERY_S = 0.25
_MAX_STATUS_CHARACTERS = 1000
"""Longest status text; systemd drops a message of more than 4096 bytes (sd_notify(3) has no limit
of its own)."""
_EXTENSION_S = 15.0
"""Time by which systemd's start time-out is kept ahead while the gate waits, and after which
systemd ends a gate that hangs."""
_SYSTEMCTL_TIMEOUT_S = 5.0
_JOURNAL_S = 0.5
"""Longest wait until the journal has read the refusal: it finds the unit by the living process."""
_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755
"""Mode of the directory of verdicts, which the supervisor reads whatever the umask."""


class Gate:
    """Gate of one start."""

    def __init__(self, options: Options) -> None:
        self._name = options.text("name")
        if not is_profile_name(self._name):
            raise UsageError(f"not a profile's name: {self._name}")
        self._gate_dir = options.text("gate-dir", GATE_DIR)
        self._systemctl = options.text("systemctl", "/usr/bin/systemctl")
        self._announced_s = -_STATUS_EVERY_S
        self._leases = leases.parse(options.many("lease"), options.text("lease-dir", LEASE_DIR))
        self._port = options.whole("port")
        self._program = options.text("port-program", self._name)
        self._release = Release(
            self._leases,
            requirement_from(options, own=unit_of(self._name)),
            deadline_s=options.seconds("deadline-s", _DEADLINE_S),
            port=None if self._port is None else self._watched_port(self._port, options),
            on_progress=self._announce,
        )

    def _watched_port(self, port: int, options: Options) -> PortWatch:
        if not 0 < port <= _MAX_PORT:
            raise UsageError(f"not a port: {port}")
        reuse = options.many("port-reuse")
        if unknown := set(reuse) - {*PORT_REUSE}:
            raise UsageError(f"--port-reuse is none of {', '.join(PORT_REUSE)}: {min(unknown)}")
        if not reuse and last_program(self._gate_dir, port) == self._program:
            # Its own connections are the best evidence of how a program binds.
            reuse = PORT_REUSE
        return PortWatch(port, reuse, clock=time.monotonic)

    def run(self) -> int:
        """Wait for admission; returns the exit status."""
        try:
            obstacle = self._release.wait()
            while obstacle is None and not self._mark():
                obstacle = self._release.wait()
            return self._admit() if obstacle is None else self._refuse(obstacle)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001
            return self._broken(error)
        finally:
            self._release.close()

    def _mark(self) -> bool:
        """Withdraw the admission of rivals without a lock; False: one has its lock meanwhile."""
        for lease in self._leases:
            lease.mark(self._name)
        return all(lease.is_free() for lease in self._leases)

    def _admit(self) -> int:
        """Replace the last verdict where there was a wait for memory or the port, else remove it."""
        self._remove_verdict()
        reason, first = self._release.change_text(), self._release.first_held
        if reason:
            held = {} if first is None else {"from_bytes": first, "to_bytes": self._release.held}
            waited_s = round(self._release.waited_s, 3)
            self._write_verdict(gate_verdict.ADMITTED, reason, waited_s=waited_s, **held)
        if self._port is not None:
            record_program(self._gate_dir, self._port, self._program)
        return ADMITTED

    def _announce(self, text: str, waited_s: float) -> None:
        if waited_s - self._announced_s < _STATUS_EVERY_S:
            return
        self._announced_s = waited_s
        from appliance.wire.sd_notify import extend, notify  # noqa: PLC0415

        notify(f"STATUS={text}", extend(_EXTENSION_S))

    def _refuse(self, obstacle: Obstacle) -> int:
        waited_s = self._release.waited_s
        waited = f" (waited {waited_s:.0f} s)" if waited_s >= 1 else ""
        verdict = gate_verdict.REFUSED if obstacle.rival else gate_verdict.LATE
        reason = f"{obstacle.explain()}{waited}"
        self._reset_failed()
        self._write_verdict(verdict, reason)
        from appliance.wire.sd_notify import notify  # noqa: PLC0415

        notify(f"STATUS={verdict}: {reason}"[:_MAX_STATUS_CHARACTERS])
        self._log_refusal(verdict, f"{self._name} {verdict}: {reason}")
        return REFUSED if obstacle.rival else LATE

    def _log_refusal(self, verdict: str, text: str) -> None:
        """Log with fields where there is a journal; a gate ends at once, so wait until it has read."""
        from appliance.model.journal_events import (  # noqa: PLC0415
            JournalEvent,
            JournalField,
            event_pairs,
        )
        from appliance.wire.journal_socket import (  # noqa: PLC0415
            JournalSocket,
            encode_entry,
            entry_head,
            stderr_is_journal,
        )

        if stderr_is_journal(os.environ):
            journal = JournalSocket()
            fields = event_pairs(
                JournalEvent.START_REFUSED,
                profiles=(self._name,),
                others=((JournalField.OUTCOME, verdict),),
            )
            unit = unit_of(self._name).removesuffix(".service")
            if journal.send(
                encode_entry([*entry_head(text, priority=ERROR, identifier=unit), *fields])
            ):
                journal.settle(_JOURNAL_S)
                return
        say(ERROR, text)

    def _broken(self, error: Exception) -> int:
        """Refuse after an error in our own code: a restart could start beside another backend."""
        import traceback  # noqa: PLC0415

        say(ERROR, "".join(traceback.format_exception(error)))
        self._write_verdict(gate_verdict.REFUSED, f"the gate itself failed: {error!r}")
        return REFUSED

    def _write_verdict(self, verdict: str, reason: str, **figures: float) -> None:
        directory = self._gate_dir
        invocation_id = os.environ.get("INVOCATION_ID", "")
        text = gate_verdict.encoded(
            verdict, reason, unix_s=time.time(), invocation_id=invocation_id, figures=figures
        )
        file, new = gate_verdict.file_of(directory, self._name), f"{directory}/.{self._name}.new"
        try:
            os.makedirs(directory, mode=_DIRECTORY_MODE, exist_ok=True)
            replace_volatile(file, new, text, mode=_FILE_MODE)
        except OSError as error:
            say(WARNING, f"cannot write the verdict {file}: {error.strerror}")

    def _remove_verdict(self) -> None:
        """Remove the verdict. Never raises: an old sentence must not prevent a start."""
        try:
            os.unlink(gate_verdict.file_of(self._gate_dir, self._name))
        except OSError:
            return

    def _reset_failed(self) -> None:
        """Exclude this start from the start limit, which counts crashes."""
        import subprocess  # noqa: PLC0415

        argv = [self._systemctl, "reset-failed", unit_of(self._name)]
        null = subprocess.DEVNULL
        try:
            subprocess.run(  # noqa: S603
                argv,
                check=False,
                timeout=_SYSTEMCTL_TIMEOUT_S,
                stdin=null,
                stdout=null,
                stderr=null,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            say(WARNING, f"systemctl reset-failed: {error}")


def requirement_from(options: Options, *, own: str) -> MemoryRequirement:
    """Return the requirement on the command line, with the observed peak. Raises `UsageError`."""
    observed = options.optional("observed")
    try:
        return requirement_in(
            options,
            peak=_peak(observed, options.text("fingerprint", "")) if observed else None,
            rivals=_rivals(options.many("rival")),
            own=own,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _peak(path: str, fingerprint: str) -> peak.ObservedPeak | None:
    """Return the observed peak of configuration `fingerprint`; None: none that can be used."""
    try:
        found = peak.decoded(read_untrusted_text(path, peak.MOST_FILE_BYTES) or "")
    except UntrustedFileError:
        return None
    return None if found is None else found.of(fingerprint)


def _rivals(names: Sequence[str]) -> frozenset[str]:
    for name in names:
        if not is_profile_name(name):
            raise UsageError(f"not a profile's name: {name}")
    return obstacles.rival_units(names)


def main(argv: Sequence[str]) -> int:
    """Decide; returns the verdict as exit status."""
    try:
        return Gate(Options(argv, _FLAGS, GATE_SWITCHES)).run()
    except UsageError as error:
        say(ERROR, f"gate: {error}")
        return EX_USAGE
    except OSError as error:
        # Processes or memory are short: the next try may succeed.
        say(ERROR, f"gate: {error}")
        return LATE


def run() -> NoReturn:
    """Run the gate for its start script."""
    run_program(main)


if __name__ == "__main__":
    run()
