"""Memory of this box for a proposal, read as a preflight reads it."""

import asyncio
import contextlib
from pathlib import Path

from appliance.cli.catalogue import catalogue_of
from appliance.cli.offline_status import observed_from, show_units
from appliance.cli.paths import find_places
from appliance.model.errors import StoreError, UnitError
from appliance.model.paths import BUILDS
from appliance.model.profile import Catalogue
from appliance.profiles.proposing.fit_judge import ProposalBox, proposal_box
from appliance.settings.tables import Settings
from appliance.switch.memory_findings import Leaving
from appliance.system.host import LinuxHost


def read_proposal_box(settings: Settings) -> ProposalBox:
    """Return the memory that a profile could have if every other one had stopped.

    Raises:
        ProposalRefusedError: there are GPUs, and none of them can be read.
        ApplianceError: the size of main memory cannot be read.
    """
    host = LinuxHost(
        gate_dir=settings.gate_dir,
        unit_dir=settings.unit_dir,
        builds_dir=settings.applied_dir / BUILDS,
        margin_bytes=settings.memory.margin,
    )
    facts = asyncio.run(host.box(with_gpus=True))
    catalogue: Catalogue = {}
    with contextlib.suppress(StoreError):
        catalogue = catalogue_of(find_places())
    running = [name for name in _busy(catalogue, settings.unit_dir) if name in catalogue]
    leaving = Leaving(names=frozenset(catalogue), running=tuple(catalogue[n] for n in running))
    return proposal_box(facts, leaving)


def _busy(catalogue: Catalogue, unit_dir: Path) -> tuple[str, ...]:
    """Return the profiles that run; none where systemd does not answer."""
    try:
        return observed_from(show_units(catalogue, str(unit_dir))).busy()
    except UnitError:
        return ()
