"""Profile names and the unit names made from them."""

import re
from typing import Final

PROFILE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,47}\Z")
"""A profile's name: also part of a unit name and of paths, hence no metacharacter of either."""

HOLD_UNIT: Final = "appliance-hold.service"
RUN_UNIT: Final = "appliance-run.service"
"""Runs one command of an operator in place of models (launch.run)."""
SUPERVISOR_UNIT: Final = "appliance-supervisor.service"
SUPERVISOR_SOCKET_UNIT: Final = "appliance-supervisor.socket"
"""The control socket, for operators."""
REQUEST_SOCKET_UNIT: Final = "appliance-request.socket"
"""What the gateway may ask the supervisor for."""
GATEWAY_UNIT: Final = "appliance-gateway.service"
GATEWAY_SOCKET_UNIT: Final = "appliance-gateway.socket"
REQUEST_SOCKET: Final = "request.sock"
"""Its file, beside the control socket."""
JOBS_SOCKET: Final = "jobs.sock"
"""Where the supervisor asks for jobs, in the same place (launch.jobs)."""
GATEWAY_USER: Final = "appliance-gateway"
_PREFIX: Final = "appliance-backend-"
_SUFFIX: Final = ".service"


def is_profile_name(text: str) -> bool:
    """Whether `text` may name a profile."""
    return PROFILE_NAME.match(text) is not None


def unit_of(profile: str) -> str:
    """The systemd unit that runs `profile`."""
    return f"{_PREFIX}{profile}{_SUFFIX}"


def profile_of(unit: str) -> str | None:
    """The profile that `unit` runs; None when the unit is not a backend of ours."""
    if not (unit.startswith(_PREFIX) and unit.endswith(_SUFFIX)):
        return None
    name = unit[len(_PREFIX) : -len(_SUFFIX)]
    return name if is_profile_name(name) else None
