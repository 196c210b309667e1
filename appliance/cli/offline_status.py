"""Status document without the supervisor, from manifest, state files and `systemctl show`.

Marks and operations, which only the supervisor knows, are unknown in it.
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from appliance import __version__
from appliance.cli.paths import Places
from appliance.model.errors import ApplianceError, UnitError
from appliance.model.names import HOLD_UNIT, RUN_UNIT, SUPERVISOR_UNIT, profile_of, unit_of
from appliance.model.observed import ActiveState, Observed, ObservedUnit, stopped_at
from appliance.model.profile import Catalogue
from appliance.model.quantities import duration_s
from appliance.model.status import MemoryRow, StatusDocument, SupervisorRow
from appliance.status.box_status import build_status, uptime_of
from appliance.system.applied.manifest import EditWatch, recover_manifest
from appliance.system.commitment import FileCommitment
from appliance.system.kernel.text_files import meminfo
from appliance.system.launch_files import gate_refusals_in
from appliance.system.systemd.unit_properties import GAVE_UP, gave_up, was_stopped
from appliance.wire.conversation import RequestRefusedError
from appliance.wire.sd_notify import is_load_status, is_of_running_engine

_PROPERTIES: Final = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "Job",
    "Result",
    "StatusText",
    "MainPID",
    "ExecMainStatus",
    "NRestarts",
    "Restart",
    "RestartUSec",
    "ActiveEnterTimestamp",
    "ActiveEnterTimestampMonotonic",
    "ActiveExitTimestampMonotonic",
    "InactiveEnterTimestampMonotonic",
    "InactiveExitTimestampMonotonic",
    "ExecMainExitTimestampMonotonic",
    "StateChangeTimestampMonotonic",
    "NeedDaemonReload",
)
_TIMEOUT_S: Final = 10.0
_STATES: Final = frozenset(state.value for state in ActiveState)

Blocks = Mapping[str, Mapping[str, str]]
"""Properties of each unit, by its Id."""


def show_units(names: Iterable[str], unit_dir: str) -> Blocks:
    """Read the units of the profiles `names`, hold, run and the supervisor, in one call.

    Only units that systemd has in memory are listed: systemd loads a unit with all units that it
    conflicts with, and unloads them at once, so that hundreds asked by name take minutes.

    Args:
        names: Profiles.
        unit_dir: Directory of the units that systemd does not have in memory.

    Raises:
        UnitError: systemd does not answer, or does not run here.
    """
    units = [HOLD_UNIT, RUN_UNIT, SUPERVISOR_UNIT, unit_of("*")]
    command = ["systemctl", "show", "--timestamp=unix", f"--property={','.join(_PROPERTIES)}"]
    try:
        done = subprocess.run(  # noqa: S603 - arguments are ours, and no shell reads them
            [*command, "--", *units],
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnitError(f"systemd cannot be asked: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise UnitError(f"systemd does not answer: {said[0] if said else done.returncode}")
    unloaded = {unit: _unloaded(unit, unit_dir) for unit in map(unit_of, names)}
    return unloaded | parse_blocks(done.stdout)


def _unloaded(unit: str, unit_dir: str) -> Mapping[str, str]:
    is_file = os.path.isfile(f"{unit_dir}/{unit}")  # noqa: PTH113 - pathlib takes 3 ms
    return {"LoadState": "loaded" if is_file else "not-found"}


def parse_blocks(output: str) -> dict[str, Mapping[str, str]]:
    """Return the blocks of ``systemctl show`` on several units, which empty lines separate."""
    blocks: dict[str, Mapping[str, str]] = {}
    for block in _paragraphs(output):
        properties = dict(line.partition("=")[::2] for line in block)
        if name := properties.get("Id"):
            blocks[name] = properties
    return blocks


def observed_from(blocks: Blocks) -> Observed:
    """Return the backend units, the hold and the run, as the blocks have them."""
    units = {
        name: unit_from(properties)
        for unit, properties in blocks.items()
        if (name := profile_of(unit)) is not None
    }
    hold = blocks.get(HOLD_UNIT, {})
    return Observed(
        units=units,
        hold_active=hold.get("ActiveState") == "active",
        run=unit_from(blocks.get(RUN_UNIT, {})),
    )


def unit_from(properties: Mapping[str, str]) -> ObservedUnit:
    """Return one unit. States of a later systemd count as maintenance."""
    active = properties.get("ActiveState", "inactive")
    is_failed, details = active == ActiveState.FAILED, _details(properties)
    return ObservedUnit(
        active=ActiveState(active) if active in _STATES else ActiveState.MAINTENANCE,
        sub=properties.get("SubState", "dead"),
        # Present but empty while there is none.
        has_job=properties.get("Job", "") not in {"", "0"},
        result=GAVE_UP if is_failed and gave_up(details) else properties.get("Result") or "success",
        status_text=properties.get("StatusText", ""),
        has_engine_text=is_of_running_engine(properties.get("StatusText", "")),
        loading=is_load_status(properties.get("StatusText", "")),
        main_pid=_whole(properties.get("MainPID", "")),
        exit_status=_whole(properties.get("ExecMainStatus", "")),
        restarts=_whole(properties.get("NRestarts", "")),
        since_unix_s=float(_whole(properties.get("ActiveEnterTimestamp", "").removeprefix("@"))),
        since_s=_monotonic_s(properties, "ActiveEnter"),
        changed_s=_monotonic_s(properties, "StateChange"),
        stopped_s=stopped_at(
            active_exit_s=_monotonic_s(properties, "ActiveExit"),
            inactive_exit_s=_monotonic_s(properties, "InactiveExit"),
            main_exit_s=_monotonic_s(properties, "ExecMainExit"),
            changed_s=_monotonic_s(properties, "StateChange"),
        ),
        was_stopped=is_failed and was_stopped(details),
        loaded=properties.get("LoadState", "not-found") not in {"not-found", "masked"},
        needs_reload=properties.get("NeedDaemonReload") == "yes",
    )


def _details(properties: Mapping[str, str]) -> Mapping[str, object]:
    """Return the properties about the failure of a unit, in the types that they have on the bus."""
    pause = properties.get("RestartUSec", "").replace("min", "m").replace(" ", "")
    times = {k: _whole(v) for k, v in properties.items() if k.endswith("TimestampMonotonic")}
    return {
        **properties,
        **times,
        "ExecMainStatus": _whole(properties.get("ExecMainStatus", "")),
        "RestartUSec": round((duration_s(pause) or 0.0) * 1e6),
    }


def _monotonic_s(properties: Mapping[str, str], what: str) -> float:
    return _whole(properties.get(f"{what}TimestampMonotonic", "")) / 1e6


def _paragraphs(output: str) -> Iterator[list[str]]:
    lines: list[str] = []
    for line in output.splitlines():
        if line:
            lines.append(line)
        elif lines:
            yield lines
            lines = []
    if lines:
        yield lines


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def status_without(places: Places, reason: ApplianceError) -> StatusDocument:
    """Return the status document as far as systemd and the files have it.

    Args:
        places: Paths of this box.
        reason: Error of the request to the supervisor.

    Raises:
        UnitError: systemd does not answer.
        StoreError: the manifest is damaged.
    """
    found = recover_manifest(Path(places.applied_dir))
    waits = isinstance(reason, RequestRefusedError) and reason.kind == "settings"
    document = _from_systemd(places, found.content, waits=waits)
    why = [] if found.damage is None else [found.damage]
    if document.supervisor.state == "waiting":
        why.insert(0, f"the supervisor waits for settings that it can read: {reason}")
    elif document.supervisor.state == "up":
        why.insert(0, f"{reason} ({SUPERVISOR_UNIT} runs; this is what systemd alone tells)")
    verdict = document.verdict
    return document.replaced(verdict=verdict.replaced(why=[*why, *verdict.why]))


def _from_systemd(places: Places, catalogue: Catalogue, *, waits: bool) -> StatusDocument:
    blocks = show_units(catalogue, places.unit_dir)
    now_s = time.monotonic()
    commitment = FileCommitment(Path(places.state_dir))
    return build_status(
        catalogue=catalogue,
        observed=observed_from(blocks),
        committed=commitment.committed(),
        hold_until=commitment.hold_until(),
        marks=None,
        operation=None,
        last_operation=None,
        memory=_host_memory(),
        supervisor=SupervisorRow(state="waiting", uptime_s=None)
        if waits
        else _supervisor(blocks, now_s),
        host=socket.gethostname(),
        version=__version__,
        now=time.time(),
        now_s=now_s,
        edited=EditWatch().edited(catalogue),
        refusals=gate_refusals_in(Path(places.gate_dir)),
    )


def _supervisor(blocks: Blocks, now_s: float) -> SupervisorRow:
    unit = unit_from(blocks.get(SUPERVISOR_UNIT, {}))
    if not unit.serving:
        return SupervisorRow(state="down", uptime_s=None)
    return SupervisorRow(state="up", uptime_s=uptime_of(unit, now_s))


def _host_memory() -> MemoryRow:
    """Return host RAM; only the supervisor asks the GPUs."""
    total, available = meminfo()
    return MemoryRow(
        ram_total_bytes=total,
        ram_available_bytes=available,
        gpu_error="not asked: the supervisor reads the GPUs",
    )
