"""Files that the supervisor and the launch programs exchange; each has its codec elsewhere.

=================  =========================  ==========================================
file               written by                 read by
=================  =========================  ==========================================
gate's verdict     `launch.gate`              supervisor, and the command without it
observed peak      supervisor                 `launch.gate`, supervisor, `appliance show`
run's report       `launch.run`               supervisor
run's ticket       supervisor                 `launch.run`
=================  =========================  ==========================================

A file that cannot be read, or says what cannot be true, is as if absent. Without asyncio, which
`appliance show` need not import; `appliance.system.peaks` writes the peaks.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from appliance.model.claims import Claim, gpu_indexes
from appliance.model.errors import StoreError
from appliance.model.names import is_profile_name
from appliance.model.observed import RunReport
from appliance.model.operations import RunCaller
from appliance.switch.memory import peak
from appliance.switch.memory.peak import ObservedPeak
from appliance.system.files.regular import read_small_file, replace_volatile
from appliance.wire import gate_verdict, run_report, run_ticket
from appliance.wire.gate_verdict import GateVerdict

TICKET: Final = Path(run_ticket.FILE)


def read_verdicts(directory: Path) -> Iterator[tuple[str, GateVerdict]]:
    """Yield profiles with the gate's last verdict on them, damaged files left out."""
    try:
        files = sorted(directory.glob(f"*{gate_verdict.SUFFIX}"))
    except OSError:
        return
    for file in files:
        if is_profile_name(file.stem) and (verdict := _read(file)) is not None:
            yield file.stem, verdict


def gate_refusals_in(directory: Path) -> Mapping[str, str]:
    """Return why the gate last refused a start, by profile; admitted ones are absent."""
    return {name: v.reason for name, v in read_verdicts(directory) if not v.admitted}


def admissions_in(directory: Path) -> Mapping[str, str]:
    """Return what the gate waited for before it last admitted a start, by profile."""
    return {name: v.reason for name, v in read_verdicts(directory) if v.admitted}


def _read(file: Path) -> GateVerdict | None:
    try:
        return gate_verdict.decoded(read_small_file(file, gate_verdict.MAX_BYTES))
    except OSError:  # The gate has replaced or removed the file meanwhile.
        return None


def read_peak(directory: Path, name: str) -> ObservedPeak | None:
    """Return the peak of profile `name` in a directory of needs; None: none, or not credible."""
    if not is_profile_name(name):
        return None
    try:
        content = read_small_file(directory / f"{name}.json", peak.MOST_FILE_BYTES)
        return peak.decoded(content.decode("ascii"))
    except (OSError, UnicodeDecodeError):
        return None


def read_run_report(path: Path) -> RunReport | None:
    """Return the report of the launcher of the last command; None: there is none."""
    try:
        found = run_report.decoded(read_small_file(path, run_report.MAX_BYTES))
    except OSError:
        return None
    if found is None:
        return None
    return RunReport(ran=found.ran, text=found.text, operation=found.operation)


class FileRunTickets:
    """Port `RunTickets`, on a file in the supervisor's runtime directory."""

    def __init__(self, path: Path = TICKET) -> None:
        self._path = path

    def issue(self, operation: int, caller: RunCaller, claim: Claim) -> None:
        """Admit the caller of one operation, and no other. Raises `StoreError`."""
        text = run_ticket.encoded(
            operation=operation, uid=caller.uid, gpus=gpu_indexes(claim), token=caller.token
        )
        try:
            replace_volatile(self._path, self._path.with_suffix(".new"), text)
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error.strerror}") from error

    def revoke(self) -> None:
        """Admit no caller any more. Never raises: a ticket is good for one command."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            return
