"""Default paths of an installation.

The settings can move some of them (`appliance.settings.tables`). The static units, and the programs that
read no settings, know these defaults alone.

Imported before every start of a model: without `typing` and `pathlib`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

PREFIX: Final = "/opt/appliance/current"
"""Path of the installed release, a virtual environment."""
RELEASES: Final = "releases"
"""Directory of all releases, beside the link to the installed one."""
GATE_SCRIPT: Final = "bin/appliance-gate"
"""Start script of the gate below the prefix; scripts/install.sh writes it."""
BACKEND_SCRIPT: Final = "bin/appliance-backend"
"""Start script of the wrapper around every engine, below the prefix."""
COMMAND_SCRIPT: Final = "bin/appliance"
"""Start script of the command, below the prefix."""
SETTINGS_FILE: Final = "/etc/appliance/appliance.toml"
PROFILES_DIR: Final = "/etc/appliance/profiles"
CANARIES_DIR: Final = "/etc/appliance/canaries"
"""Directory of the operator's canaries, a file of JSON lines for each profile."""
UNIT_DIR: Final = "/etc/systemd/system"
POLKIT_RULE: Final = "/etc/polkit-1/rules.d/50-appliance.rules"
STATE_DIR: Final = "/var/lib/appliance"
"""State directory of the supervisor: committed names, hold, history, observed peaks."""
NEEDS: Final = "needs"
"""Directory of observed peaks, below the state directory."""
HEALTH_STATE_DIR: Final = "/var/lib/appliance-health"
"""State directory of the health agent: its measurements."""
APPLIED_DIR: Final = "/var/lib/appliance-applied"
"""Directory of what `appliance apply` compiled; only root writes it."""
BUILDS: Final = "builds"
"""Directory below `APPLIED_DIR`, with what each profile's engine has told about its build."""
APPLIED_UNITS: Final = "units"
"""Directory below `APPLIED_DIR`, with root's copies of the units that are installed."""
CACHE_DIR: Final = "/var/cache/appliance-backend"
"""Directory with a directory for each profile, which its engine may write."""
HF_HOME: Final = "/var/lib/huggingface"
SOCKET_DIR: Final = "/run/appliance"
CONTROL_SOCKET: Final = f"{SOCKET_DIR}/control.sock"
GATEWAY_SOCKET: Final = f"{SOCKET_DIR}/gateway.sock"
LANE_SOCKET: Final = f"{SOCKET_DIR}/lane.sock"
"""Socket on which the health agent sends probes through the gateway."""
PROMPT_SOCKET: Final = f"{SOCKET_DIR}/prompt.sock"
"""Socket on which the web process is a client of the gateway, for prompts from the page."""
REQUEST_SOCKET: Final = f"{SOCKET_DIR}/request.sock"
"""Socket on which the gateway asks the supervisor; always beside the control socket."""
TOKEN_SOCKET: Final = f"{SOCKET_DIR}/token.sock"
STATUS_SOCKET: Final = f"{SOCKET_DIR}/status.sock"
"""Socket on which the supervisor tells the status to processes that only look at the box; always
beside the control socket."""
JOBS_SOCKET: Final = f"{SOCKET_DIR}/jobs.sock"
"""Socket on which the supervisor asks for jobs (launch.jobs); always beside the control socket."""
HEALTH_SOCKET: Final = f"{SOCKET_DIR}/health.sock"
"""Socket between the CLI and the health agent; always beside the control socket."""
VIEW_SOCKET: Final = f"{SOCKET_DIR}/view.sock"
"""Socket on which the health agent answers processes that only look; always beside the control socket."""
NOTIFY_SOCKET: Final = f"{SOCKET_DIR}/notify.sock"
"""Socket on which the health agent has the notifier send messages."""
AUDIT_SOCKET: Final = f"{SOCKET_DIR}/audit.sock"
"""Socket on which the health agent asks for the listening sockets of processes."""
CHECK_SOCKET: Final = f"{SOCKET_DIR}/check.sock"
"""Socket on which the health agent has addresses of other machines checked."""
TARGETS_FILE: Final = "/etc/appliance/targets.toml"
"""File of the targets of alerts with their secrets, for root alone; the notifier gets it as a credential."""
TARGET_NAMES: Final = "targets.json"
"""File with the targets' names and kinds, below `APPLIED_DIR`; it holds no secret."""
SUPERVISOR_RUNTIME_DIR: Final = "/run/appliance-supervisor"
GATEWAY_RUNTIME_DIR: Final = "/run/appliance-gateway"
BACKEND_RUNTIME_DIR: Final = "/run/appliance-backend"
"""Directory with a directory for the socket of each profile that has one."""
LEASE_DIR: Final = "/run/appliance-leases"
CLAIMED_DIR: Final = "/run/appliance-claimed"
"""Directory in which an engine sees the lease files of its own claim, and no others."""
GATE_DIR: Final = "/run/appliance-gate"
"""Directory of the gate's last verdict on each profile."""
RUN_DIR: Final = "/run/appliance-run"
"""Directory with the socket and the report of the program that runs an operator's command
(launch.run)."""


def build_of(module: str) -> str | None:
    """Return the build of the release that a module is in, which tells two builds of one version apart.

    Args:
        module: Path of the module's file; scripts/install.sh names a release ``VERSION-BUILD``.

    Returns:
        None: the module is in no release, but in a checkout.
    """
    _, found, below = module.rpartition(f"/{RELEASES}/")
    return below.partition("/")[0].rpartition("-")[2] if found else None
