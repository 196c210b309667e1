"""Names of profiles, units, sockets, users and devices.

Imported by the gate and the wrapper before every start: without `re` and `typing`, whose imports
cost more than everything here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_FIRST: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_LATER: Final = _FIRST | frozenset("._-")
_MAX_CHARACTERS: Final = 48
HOLD_UNIT: Final = "appliance-hold.service"
RUN_UNIT: Final = "appliance-run.service"
"""Runs one command of an operator in place of models (launch.run)."""
APPLY_UNIT: Final = "appliance-apply.service"
SUPERVISOR_UNIT: Final = "appliance-supervisor.service"
SUPERVISOR_SOCKET_UNIT: Final = "appliance-supervisor.socket"
"""The control socket, for operators."""
REQUEST_SOCKET_UNIT: Final = "appliance-request.socket"
"""What the gateway may ask the supervisor for."""
GATEWAY_UNIT: Final = "appliance-gateway.service"
GATEWAY_SOCKET_UNIT: Final = "appliance-gateway.socket"
GATEWAY_USER: Final = "appliance-gateway"
BACKEND_GROUP: Final = "appliance-backend"
"""Primary group of every engine, whoever its user is: of its sockets, and of model files that not
everybody may read."""
SUPERVISOR_USER: Final = "appliance"
"""Every other daemon's user begins with this and a dash."""
OPERATORS_GROUP: Final = "appliance-operators"
"""Who may ask the supervisor for everything, and have commands run."""
_FIRST_DYNAMIC_UID: Final = 61184
_LAST_DYNAMIC_UID: Final = 65519
"""systemd.exec(5), DynamicUser=: no person has one of these."""
_PREFIX: Final = "appliance-backend-"
_SUFFIX: Final = ".service"


def is_profile_name(text: str) -> bool:
    """Whether `text` may name a profile: no metacharacter of unit names or of paths."""
    return 0 < len(text) <= _MAX_CHARACTERS and text[0] in _FIRST and _LATER.issuperset(text)


def unit_of(profile: str) -> str:
    """The systemd unit that runs `profile`."""
    return f"{_PREFIX}{profile}{_SUFFIX}"


def profile_of(unit: str) -> str | None:
    """The profile that `unit` runs; None when the unit is not a backend of ours."""
    if not (unit.startswith(_PREFIX) and unit.endswith(_SUFFIX)):
        return None
    name = unit[len(_PREFIX) : -len(_SUFFIX)]
    return name if is_profile_name(name) else None


def is_engine(uid: int, group: str) -> bool:
    """Whether a process with this uid and primary group is an engine, or another made-up user's."""
    return group == BACKEND_GROUP or _FIRST_DYNAMIC_UID <= uid <= _LAST_DYNAMIC_UID


def is_service(user: str, uid: int, group: str) -> bool:
    """Whether a process with this user and primary group is a service: no person is behind it."""
    daemon = user == SUPERVISOR_USER or user.startswith(f"{SUPERVISOR_USER}-")
    return daemon or is_engine(uid, group)


def is_lease_name(text: str) -> bool:
    """Whether `text` names a device that can be claimed: ``cpu``, ``gpu-all`` or ``gpu-N``."""
    gpu = text.removeprefix("gpu-")
    return text in {"cpu", "gpu-all"} or (gpu != text and gpu.isascii() and gpu.isdigit())
