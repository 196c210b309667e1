"""Energy counter of a profile's GPUs, from the supervisor's status socket."""

from appliance.domain.errors import ApplianceError
from appliance.domain.measurements import BoxGpus
from appliance.domain.profile import Applied
from appliance.protocol.conversation.client import ask
from appliance.protocol.json_dataclasses import from_json
from appliance.protocol.status_socket import STATUS, GpuEvidenceRequest


def energy_j(path: str, applied: Applied) -> float | None:
    """Return the sum of the energy counters of a profile's GPUs.

    Args:
        path: The status socket.
        applied: The profile.

    Returns:
        None: it uses no GPU, this user may not open the socket, or one of its GPUs tells none.
    """
    if not applied.gpus:
        return None
    try:
        found = from_json(BoxGpus, ask(STATUS, path, GpuEvidenceRequest()).details)
    except (ApplianceError, ValueError):
        return None
    counters = [
        gpu.evidence.energy_j
        for gpu in found.gpus
        if applied.gpus == "all" or gpu.index in applied.gpus
    ]
    known = [counter for counter in counters if counter is not None]
    return sum(known) if known and len(known) == len(counters) else None
