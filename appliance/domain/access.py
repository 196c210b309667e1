"""The ways to the files that an engine opens, as the file system shows them."""

from dataclasses import dataclass
from enum import StrEnum


class Use(StrEnum):
    """What an engine does with a file."""

    READ = "read"
    RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One file, directory or link on the way to a file, as lstat(2) shows it."""

    path: str
    mode: int
    uid: int
    gid: int
    owner: str
    """Name of `uid`."""
    has_acl: bool = False
    """It has an access list (acl(5)), which `mode` does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The way to one file, links followed."""

    nodes: tuple[Node, ...]
    use: Use
    arrived: bool
    """The last node is the file; False: it is missing, or out of this process's sight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFacts:
    """An engine's identity, and the ways to everything that it opens before it serves."""

    user: str
    uid: int | None
    """None: systemd makes the user at each start, and no file is its own."""
    gids: frozenset[int]
    walks: tuple[Walk, ...]
    unit: str | None = None
    """Text of the installed unit, its drop-ins after it; None: there is none yet."""
