"""Users and groups of the processes of a backend unit."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from appliance.model.names import BACKEND_GROUP
from appliance.model.profile import Applied

GPU_GROUPS: Final = ("render", "video")
"""Groups of the devices' nodes, for an engine that uses a GPU."""
_PREFIX: Final = "apl-"
_LONGEST_USER: Final = 31
"""Longest name of a user in bytes, as systemd accepts it (UT_NAMESIZE)."""
_DIGEST_CHARACTERS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """User and groups of a unit's processes, by name."""

    user: str
    dynamic: bool
    """Whether systemd makes the user while the unit runs (DynamicUser=): before a start the user
    has no uid, and no file outside the unit's own directories belongs to it."""
    group: str
    further_groups: tuple[str, ...] = ()


def identity_of(applied: Applied) -> Identity:
    """Return user and groups of the unit that runs `applied`."""
    return Identity(
        user=applied.user or own_user(applied.name),
        dynamic=not applied.user,
        group=BACKEND_GROUP,
        further_groups=GPU_GROUPS if applied.gpus else (),
    )


def own_user(profile: str) -> str:
    """Return the name of the user that only this profile has.

    The name of a profile may be longer than that of a user, and may have dots; a digest then tells
    it from others that begin alike.
    """
    name = _PREFIX + profile
    if len(name) <= _LONGEST_USER and "." not in name:
        return name
    digest = sha256(profile.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    beginning = name.replace(".", "-")[: _LONGEST_USER - 1 - len(digest)]
    return f"{beginning}-{digest}"
