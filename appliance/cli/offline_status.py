"""The status document without the supervisor: manifest, systemd and the state files.

Marks and operations, which only the supervisor knows, are unknown in it.
"""

import socket
import time
from pathlib import Path

from appliance import __version__
from appliance.adapters.applied.manifest import EditWatch, recover_manifest
from appliance.adapters.commitment import FileCommitment
from appliance.adapters.kernel.text_files import meminfo
from appliance.adapters.launch_files import refusals_in
from appliance.cli.paths import Places
from appliance.cli.unit_states import Blocks, observed_from, show_units, unit_from
from appliance.domain.errors import ApplianceError
from appliance.domain.names import SUPERVISOR_UNIT
from appliance.domain.profile import Catalogue
from appliance.planning.status.box_status import build_status, uptime_of
from appliance.planning.status.document import StatusDocument, SupervisorRow


def status_without(places: Places, reason: ApplianceError) -> StatusDocument:
    """Return the status document as far as systemd and the files tell it.

    Args:
        places: Paths of this box.
        reason: Why the supervisor could not be asked.

    Raises:
        UnitError: systemd does not answer.
        StoreError: the manifest is damaged.
    """
    found = recover_manifest(Path(places.applied_dir))
    document = _from_systemd(places, found.content)
    if found.damage is not None:
        document["verdict"]["why"].insert(0, found.damage)
    if document["supervisor"]["state"] == "up":
        hint = f"{reason} ({SUPERVISOR_UNIT} runs; this is what systemd alone tells)"
        document["verdict"]["why"].insert(0, hint)
    return document


def _from_systemd(places: Places, catalogue: Catalogue) -> StatusDocument:
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
        supervisor=_supervisor(blocks, now_s),
        host=socket.gethostname(),
        version=__version__,
        now=time.time(),
        now_s=now_s,
        edited=EditWatch().edited(catalogue),
        refusals=refusals_in(Path(places.gate_dir)),
    )


def _supervisor(blocks: Blocks, now_s: float) -> SupervisorRow:
    unit = unit_from(blocks.get(SUPERVISOR_UNIT, {}))
    if not unit.serving:
        return SupervisorRow(state="down", uptime_s=None)
    return SupervisorRow(state="up", uptime_s=uptime_of(unit, now_s))


def _host_memory() -> dict[str, object]:
    """Return host RAM; only the supervisor asks the GPUs."""
    total, available = meminfo()
    return {
        "ram_total_bytes": total,
        "ram_available_bytes": available,
        "gpus": [],
        "gpu_state": None,
        "gpu_error": "not asked: the supervisor reads the GPUs",
        "sampled_unix_s": None,
        "sampled_age_s": None,
    }
