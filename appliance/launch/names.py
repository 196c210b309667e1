"""Names that end up in paths and unit names, checked again here.

The same rule as `appliance.domain.names`, which these programs do not import; a test asserts
that both agree. Written without `re`, whose import costs more than everything in this module.
"""

from __future__ import annotations

_FIRST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_LATER = _FIRST | frozenset("._-")
_MAX_CHARACTERS = 48
BACKEND_GROUP = "appliance-backend"
"""Primary group of every engine, whoever its user is."""
_SERVICE_USER = "appliance"
"""Every daemon's user is this, or begins with this and a dash."""
_FIRST_DYNAMIC_UID = 61184
_LAST_DYNAMIC_UID = 65519
"""systemd.exec(5), DynamicUser=: no person has one of these."""


def is_profile_name(text: str) -> bool:
    """Whether `text` may name a profile."""
    return 0 < len(text) <= _MAX_CHARACTERS and text[0] in _FIRST and _LATER.issuperset(text)


def unit_of(profile: str) -> str:
    """The systemd unit that runs `profile`."""
    return f"appliance-backend-{profile}.service"


def is_engine(uid: int, group: str) -> bool:
    """Whether a process with this uid and primary group is an engine, or another made-up user's."""
    return group == BACKEND_GROUP or _FIRST_DYNAMIC_UID <= uid <= _LAST_DYNAMIC_UID


def is_service(user: str, uid: int, group: str) -> bool:
    """Whether a process with this user and primary group is a service: no person is behind it."""
    daemon = user == _SERVICE_USER or user.startswith(f"{_SERVICE_USER}-")
    return daemon or is_engine(uid, group)


def is_lease_name(text: str) -> bool:
    """Whether `text` names a device that can be claimed: ``cpu``, ``gpu-all`` or ``gpu-N``."""
    gpu = text.removeprefix("gpu-")
    return text in {"cpu", "gpu-all"} or (gpu != text and gpu.isascii() and gpu.isdigit())
