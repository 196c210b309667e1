"""Paths to the files that an engine opens, with owner and mode of each node on the way."""

from dataclasses import dataclass
from enum import StrEnum


class Use(StrEnum):
    """Use that an engine makes of a file."""

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
    """Whether the node has an access control list (acl(5)), which `mode` does not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Nodes on the path to one file, links followed."""

    nodes: tuple[Node, ...]
    use: Use
    arrived: bool
    """Whether the last node is the file; False: the file is missing, or is in a directory that this
    process may not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFacts:
    """Identity of an engine, and the paths to all files that it opens before it serves."""

    user: str
    uid: int | None
    """User ID of the engine; None: systemd makes the user at each start, so that no file belongs to
    it."""
    gids: frozenset[int]
    walks: tuple[Walk, ...]
    unit: str | None = None
    """Text of the installed unit, followed by its drop-ins; None: the unit is not installed yet."""
