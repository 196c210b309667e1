"""Draft of a profile, facts of the machine that it is made for, and warnings about the server that it replaces.

A draft has the keys of the profile, and the disposition of every part of the configuration. A unit that was
imported keeps its port and its memory until somebody stops it, and comes back at the next boot while it is enabled.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from appliance.model.wording import printable
from appliance.profiles.foreign.server_command import Disposition, DispositionKind

EXTRA_ARGS: Final = "extra_args"
PROGRAMS: Final = frozenset({"llama-server", "vllm", "sglang"})
"""Engines whose program, which has the engine's name, is looked for on this machine."""
NOT_FOUND: Final = "not found on this machine: correct the path"
_FIRST_PORT: Final = 8020
_LEAST_PORT: Final = 1024
_MOST_PORT: Final = 65_535
_MOST_NAME: Final = 48
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftKey:
    """Key of a draft with its value."""

    table: str
    """Table of the key; empty: the top of the file."""
    key: str
    value: object
    """Value as TOML has it: text, number, truth value, list or table."""
    comment: str = ""
    """Phrase after the value; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftArgument:
    """Option without a key, as ``extra_args`` has it."""

    words: tuple[str, ...]
    comment: str = ""
    place: str
    """Name by which its disposition is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDraft:
    """Profile that is made from a configuration, before it is checked."""

    name: str
    origin: str
    """Source of the profile: a file, and the place in it."""
    keys: tuple[DraftKey, ...]
    """Keys in the order of the file: those of the top first."""
    extra_args: tuple[DraftArgument, ...] = ()
    dispositions: tuple[Disposition, ...] = ()
    """Outcome of every part of the source, in its order."""

    def of(self, outcome: DispositionKind) -> tuple[Disposition, ...]:
        """Return the parts that had one outcome."""
        return tuple(d for d in self.dispositions if d.outcome is outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Facts of the machine for an import; the functions only look."""

    find_program: Callable[[str], str | None]
    """Function that returns the path of a program by its name; None: it is not in PATH."""
    home_of: Callable[[str], str | None]
    """Function that returns the home of a user, "" for the caller's; None: there is no such user."""
    taken_ports: Mapping[int, str] = field(default_factory=dict)
    """Ports that a profile cannot have, and who has them."""
    taken_names: frozenset[str] = frozenset()

    def free_port(self, wanted: int) -> tuple[int, str]:
        """Return a port that no other has, and a phrase where it is not the one that was wanted."""
        port, note = wanted, ""
        if not _LEAST_PORT <= port <= _MOST_PORT:
            port, note = _FIRST_PORT, f"was {port}: a backend's port is {_LEAST_PORT} or higher"
        elif port in self.taken_ports:
            note = f"was {port}, which {self.taken_ports[port]} has"
        while port in self.taken_ports:
            port += 1
        return port, note

    def free_name(self, wanted: str, otherwise: str) -> str:
        """Return a name that no other profile has, made of `wanted`, or of `otherwise` where none can be."""
        base = _NOT_IN_NAMES.sub("-", wanted.lower()).strip("-._")[:_MOST_NAME].rstrip("-._")
        base = base or otherwise
        name, number = base, 2
        while name in self.taken_names:
            end = f"-{number}"
            name, number = f"{base[: _MOST_NAME - len(end)]}{end}", number + 1
        return name

    def with_profile(self, draft: ProfileDraft) -> "HostFacts":
        """Return the facts for the next draft: this one's name and port are taken."""
        ports = {
            key.value: draft.name
            for key in draft.keys
            if key.key == "port" and not key.table and isinstance(key.value, int)
        }
        return replace(
            self,
            taken_ports={**self.taken_ports, **ports},
            taken_names=self.taken_names | {draft.name},
        )


def without_key(draft: ProfileDraft, index: int, reason: str) -> ProfileDraft:
    """Return a draft without one of its keys, which its rules refuse; its option is dropped."""
    gone = draft.keys[index]
    place = f"[{gone.table}] {gone.key}" if gone.table else gone.key
    return replace(
        draft,
        keys=(*draft.keys[:index], *draft.keys[index + 1 :]),
        dispositions=_dropped(draft.dispositions, place, reason),
    )


def without_argument(draft: ProfileDraft, index: int, reason: str) -> ProfileDraft:
    """Return a draft without one of its extra arguments, which its rules refuse."""
    gone = draft.extra_args[index]
    kept = (*draft.extra_args[:index], *draft.extra_args[index + 1 :])
    return replace(
        draft, extra_args=kept, dispositions=_dropped(draft.dispositions, gone.place, reason)
    )


def _dropped(
    dispositions: Iterable[Disposition], place: str, reason: str
) -> tuple[Disposition, ...]:
    return tuple(
        replace(d, outcome=DispositionKind.DROPPED, reason=reason)
        if d.outcome is not DispositionKind.DROPPED and d.key == place
        else d
        for d in dispositions
    )


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
