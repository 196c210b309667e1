"""Names that end up in paths and unit names, checked again here.

The same rule as `appliance.domain.names`, which these programs do not import; a test asserts
that both agree. Written without `re`, whose import costs more than everything in this module.
"""

from __future__ import annotations

_FIRST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_LATER = _FIRST | frozenset("._-")
_MAX_CHARACTERS = 48


def is_profile_name(text: str) -> bool:
    """Whether `text` may name a profile."""
    return 0 < len(text) <= _MAX_CHARACTERS and text[0] in _FIRST and _LATER.issuperset(text)


def unit_of(profile: str) -> str:
    """The systemd unit that runs `profile`."""
    return f"appliance-backend-{profile}.service"


def is_lease_name(text: str) -> bool:
    """Whether `text` names a device that can be claimed: ``cpu``, ``gpu-all`` or ``gpu-N``."""
    gpu = text.removeprefix("gpu-")
    return text in {"cpu", "gpu-all"} or (gpu != text and gpu.isascii() and gpu.isdigit())
