"""Warnings of an import about the server that a profile is made of: it may still run here, or be missing.

A unit that was imported keeps its port and its memory until somebody stops it, and comes back at the next
boot while it is enabled.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.model.wording import printable
from appliance.profiles.foreign.profile_draft import ProfileDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class OldServer:
    """State of the server here."""

    unit: str = ""
    """Unit that was imported; empty: the source is none, or is not installed here."""
    is_active: bool = False
    is_enabled: bool = False
    """Whether a boot starts the unit."""
    has_program: bool = True
    """Whether the program of the profile is on this machine; True also where the profile names none."""
    port_holder: str | None = None
    """Process that listens on the profile's port, in a phrase; None: none does."""


def program_of(draft: ProfileDraft) -> str:
    """Return the path of a draft's program; empty: it names none by its path."""
    values = {(key.table, key.key): key.value for key in draft.keys}
    argv = values.get(("command", "argv"))
    named = values.get(("", "binary")) or (
        argv[0] if isinstance(argv, (list, tuple)) and argv else ""
    )
    return named if isinstance(named, str) and named.startswith("/") else ""


def port_of(draft: ProfileDraft) -> int | None:
    """Return the port of a draft; None: it has none."""
    port = next((key.value for key in draft.keys if (key.table, key.key) == ("", "port")), None)
    return port if isinstance(port, int) else None


def old_server_warnings(draft: ProfileDraft, old: OldServer) -> Iterator[str]:
    """Yield a sentence for each thing that would keep the profile from starting here."""
    unit = printable(old.unit)
    if old.is_active or old.is_enabled:
        now = "runs, and holds its port and its memory" if old.is_active else "is started by a boot"
        also = ", also after a boot" if old.is_active and old.is_enabled else ""
        yield (
            f"{unit} still {now}{also}: sudo systemctl disable --now {unit}, or name it in foreign_units"
            " of /etc/appliance/appliance.toml"
        )
    elif old.port_holder is not None:
        yield f"port {port_of(draft)} is in use by {old.port_holder}: stop it before the switch"
    if not old.has_program:
        program = printable(program_of(draft))
        yield f"its program {program} is not on this machine: install it, or change binary"
