"""Names of profiles, units, sockets, users and devices.

Imported by the gate and the wrapper before every start: without `re` and `typing`, whose imports
cost more than everything here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_FIRST: Final = frozenset(_LETTERS)
_LATER: Final = frozenset(f"{_LETTERS}._-")
_MAX_CHARACTERS: Final = 48
PROFILE_NAME: Final = rf"^[{_LETTERS}][{_LETTERS}._-]{{0,{_MAX_CHARACTERS - 1}}}\Z"
"""Pattern of `is_profile_name`."""
REQUEST_ID: Final = rf"^[{_LETTERS}._-]{{1,{_MAX_CHARACTERS}}}\Z"
"""Pattern of the gateway's ids of clients' requests."""
HOLD_UNIT: Final = "appliance-hold.service"
RUN_UNIT: Final = "appliance-run.service"
"""Unit that runs one command of an operator in place of models (launch.run)."""
APPLY_UNIT: Final = "appliance-apply.service"
SUPERVISOR_UNIT: Final = "appliance-supervisor.service"
SUPERVISOR_SOCKET_UNIT: Final = "appliance-supervisor.socket"
"""Unit of the control socket, for operators."""
REQUEST_SOCKET_UNIT: Final = "appliance-request.socket"
"""Unit of the supervisor's socket for the gateway."""
STATUS_SOCKET_UNIT: Final = "appliance-status.socket"
"""Unit of the supervisor's socket for processes that only look at the box."""
TOKEN_SOCKET_UNIT: Final = "appliance-token.socket"  # noqa: S105 - a unit
"""Unit of the supervisor's socket for requests by operators' tokens."""
GATEWAY_UNIT: Final = "appliance-gateway.service"
GATEWAY_SOCKET_UNIT: Final = "appliance-gateway.socket"
GATEWAY_USER: Final = "appliance-gateway"
HEALTH_UNIT: Final = "appliance-health.service"
HEALTH_SOCKET_UNIT: Final = "appliance-health.socket"
"""Unit of the health agent's socket, for operators."""
HEALTH_USER: Final = "appliance-health"
NOTIFIER_UNIT: Final = "appliance-notifier.service"
NOTIFY_SOCKET_UNIT: Final = "appliance-notifier.socket"
VIEW_SOCKET_UNIT: Final = "appliance-view.socket"
"""Unit of the health agent's socket for processes that only look."""
WEB_UNIT: Final = "appliance-web.service"
WEB_SOCKET_UNIT: Final = "appliance-web.socket"
WEB_USER: Final = "appliance-web"
AUDITOR_UNIT: Final = "appliance-auditor.service"
AUDIT_SOCKET_UNIT: Final = "appliance-auditor.socket"
AUDITOR_USER: Final = "appliance-auditor"
CHECKER_UNIT: Final = "appliance-checker.service"
CHECK_SOCKET_UNIT: Final = "appliance-checker.socket"
CHECKER_USER: Final = "appliance-checker"
BACKEND_GROUP: Final = "appliance-backend"
"""Primary group of every engine, whatever its user is: of its sockets, and of model files that are not
readable for everybody."""
SUPERVISOR_USER: Final = "appliance"
"""User of the supervisor; the user of each other daemon begins with this name and a dash."""
OPERATORS_GROUP: Final = "appliance-operators"
"""Group of the users who may use every verb, and have commands run."""
_FIRST_DYNAMIC_UID: Final = 61184
_LAST_DYNAMIC_UID: Final = 65519
"""Highest UID of DynamicUser= (systemd.exec(5)): no person has a UID of that range."""
_PREFIX: Final = "appliance-backend-"
_BUILD_PREFIX: Final = "appliance-build-"
_SUFFIX: Final = ".service"


def is_profile_name(text: str) -> bool:
    """Tell whether `text` may name a profile: it has no metacharacter of unit names or of paths."""
    return 0 < len(text) <= _MAX_CHARACTERS and text[0] in _FIRST and _LATER.issuperset(text)


def unit_of(profile: str) -> str:
    """Return the systemd unit that runs `profile`."""
    return f"{_PREFIX}{profile}{_SUFFIX}"


def profile_of(unit: str) -> str | None:
    """Return the profile that `unit` runs; None: the unit is not a backend."""
    if not (unit.startswith(_PREFIX) and unit.endswith(_SUFFIX)):
        return None
    name = unit[len(_PREFIX) : -len(_SUFFIX)]
    return name if is_profile_name(name) else None


def build_unit_of(profile: str) -> str:
    """Return the systemd unit that asks the engine of `profile` about its build."""
    return f"{_BUILD_PREFIX}{profile}{_SUFFIX}"


def profile_of_build(unit: str) -> str | None:
    """Return the profile whose engine `unit` asks about its build; None: the unit asks none."""
    if not (unit.startswith(_BUILD_PREFIX) and unit.endswith(_SUFFIX)):
        return None
    name = unit[len(_BUILD_PREFIX) : -len(_SUFFIX)]
    return name if is_profile_name(name) else None


def is_engine(uid: int, group: str) -> bool:
    """Tell whether a process with this uid and primary group is an engine, or has a dynamic user."""
    return group == BACKEND_GROUP or _FIRST_DYNAMIC_UID <= uid <= _LAST_DYNAMIC_UID


def is_service(user: str, uid: int, group: str) -> bool:
    """Tell whether a process with this user and primary group is a service, not a person's."""
    daemon = user == SUPERVISOR_USER or user.startswith(f"{SUPERVISOR_USER}-")
    return daemon or is_engine(uid, group)


def is_request_id(text: str) -> bool:
    """Tell whether `text` may be the gateway's id of a client's request."""
    return 0 < len(text) <= _MAX_CHARACTERS and _LATER.issuperset(text)


def is_lease_name(text: str) -> bool:
    """Tell whether `text` names a device that can be claimed: ``cpu``, ``gpu-all`` or ``gpu-N``."""
    gpu = text.removeprefix("gpu-")
    return text in {"cpu", "gpu-all"} or (gpu != text and gpu.isascii() and gpu.isdigit())
