"""Sandbox of a backend unit: its user and groups, devices, mounts, and the paths that it can see."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final

from appliance.model.claims import Lease
from appliance.model.names import BACKEND_GROUP
from appliance.model.profile import Applied
from appliance.switch.units.text import path_word, sections_of, words_of

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

    The name of a profile may be longer than that of a user, and may have dots; a digest then
    distinguishes it from others that begin alike.
    """
    name = _PREFIX + profile
    if len(name) <= _LONGEST_USER and "." not in name:
        return name
    digest = sha256(profile.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    beginning = name.replace(".", "-")[: _LONGEST_USER - 1 - len(digest)]
    return f"{beginning}-{digest}"


Entries = tuple[tuple[str, str], ...]

NETWORK: Final[Entries] = (
    ("IPAddressDeny", "any"),
    ("IPAddressAllow", "localhost"),
    # Where the kernel has no BPF the two above are silently ignored; then there are no counters.
    ("IPAccounting", "yes"),
    ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK"),
)

CONFINEMENT: Final[Entries] = (
    ("NoNewPrivileges", "yes"),
    ("CapabilityBoundingSet", ""),
    ("AmbientCapabilities", ""),
    ("ProtectSystem", "strict"),
    # llama-server takes options from /etc/llama.cpp/config.ini (common/arg.cpp).
    ("InaccessiblePaths", "-/etc/llama.cpp"),
    ("PrivateTmp", "yes"),
    ("PrivateMounts", "yes"),
    ("ProtectProc", "invisible"),
    ("ProtectClock", "yes"),
    ("ProtectHostname", "yes"),
    ("ProtectKernelLogs", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectKernelTunables", "yes"),
    ("ProtectControlGroups", "yes"),
    ("RestrictNamespaces", "yes"),
    ("RestrictRealtime", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("LockPersonality", "yes"),
    ("RemoveIPC", "yes"),
    ("KeyringMode", "private"),
    # No MemoryDenyWriteExecute: engines compile kernels at run time.
    ("SystemCallArchitectures", "native"),
    ("SystemCallFilter", "@system-service"),
    ("SystemCallFilter", "~@privileged @obsolete"),
    ("SystemCallErrorNumber", "EPERM"),
)

_HIDDEN: Final = ("/home", "/root", "/run/user")
"""Directories that ProtectHome= covers."""
PRIVATE: Final = ("/tmp", "/var/tmp")  # noqa: S108 - where nothing of ours is ever put
"""Directories that PrivateTmp= covers."""
_NO: Final = frozenset({"no", "false", "off", "0", "n", "f"})
_HOME_DEPTH: Final = 2
"""Depth of ``/home/ana``: binding this or a shorter path would show a whole home."""


def devices(*, gpus: bool) -> Entries:
    """Return device access: the GPUs' nodes for a profile that uses one, else no device."""
    if not gpus:
        return (("PrivateDevices", "yes"), ("DevicePolicy", "closed"))
    return (
        ("SupplementaryGroups", " ".join(GPU_GROUPS)),
        ("DevicePolicy", "closed"),
        ("DeviceAllow", "char-nvidia* rw"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """Mounts of a backend, sorted: places in homes that it sees, and places that it may write to.

    Homes are empty unless the profile names something in one; then only that is shown, read-only
    (systemd.exec(5): ProtectHome=tmpfs with bind mounts). What does not exist is left out of the
    mounts, so that the wrapper can say what is missing instead of systemd failing the start.
    """

    shown: tuple[str, ...]
    """Places in homes, read-only."""
    homes: tuple[str, ...]
    """Writable places in homes."""
    others: tuple[str, ...]
    """Writable places elsewhere."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Return all paths."""
        return (*self.shown, *self.homes, *self.others)

    def entries(self) -> Entries:
        """Return the assignments of [Service]."""
        return (
            ("ProtectHome", "tmpfs" if self.shown or self.homes else "yes"),
            *_each("BindReadOnlyPaths", self.shown),
            *_each("BindPaths", self.homes),
            *_each("ReadWritePaths", self.others),
        )


def mounts(*, read: Sequence[str], programs: Sequence[str], writable: Sequence[str]) -> Mounts:
    """Return the mounts for files that a backend opens.

    Args:
        read: Paths of models and the like.
        programs: Programs; each needs the installation around it.
        writable: Directories that a patch hook changes.
    """
    homes = sorted(p for p in writable if _hidden(p))
    return Mounts(
        shown=tuple(sorted(_shown(read, programs).difference(homes))),
        homes=tuple(homes),
        others=tuple(sorted(p for p in writable if not _hidden(p))),
    )


def leases(claimed: Iterable[Lease], directory: str, shown_in: str) -> Entries:
    """Return the mounts that show the leases of a claim in their own directory, and no others.

    Every engine is in the group that may open them. In their own place they cannot be shown: the
    gate makes missing ones there, and what a mount hides in a unit it hides from the gate too,
    InaccessiblePaths= apart (systemd 252, exec_command with `+`).
    """
    return (
        ("InaccessiblePaths", path_word(directory)),
        ("TemporaryFileSystem", f"{path_word(shown_in)}:ro"),
        *(
            # The wrapper reports a path that is missing.
            (
                "BindReadOnlyPaths",
                f"{path_word(f'{directory}/{lease.name}', '-')}:{path_word(f'{shown_in}/{lease.name}')}",
            )
            for lease in claimed
        ),
    )


def own_directory(parent: str, name: str) -> Entries:
    """Return the mounts that leave this engine's directory alone of those in `parent`."""
    return (
        ("TemporaryFileSystem", f"{path_word(parent)}:ro"),
        ("BindPaths", path_word(f"{parent}/{name}")),
    )


class Sight(StrEnum):
    """Visibility of a path inside a unit."""

    SHOWN = "shown"
    """Shown as outside the unit."""
    PASSED = "passed"
    """Empty directory made by systemd, on the way to a shown path: every user may enter it."""
    HIDDEN = "hidden"


def view_of(applied: Applied) -> frozenset[str]:
    """Return the paths that the unit of `applied` shows although their directory is hidden."""
    return frozenset(_shown(opened(applied), (applied.binary, *applied.programs)))


def view_in(text: str) -> frozenset[str]:
    """Return those paths for a unit with this text and its drop-ins; of a bind both sides."""
    shown: set[str] = set()
    protected = {"ProtectHome": "no", "PrivateTmp": "no"}
    for key, value in (e for s in sections_of(text) if s.name == "Service" for e in s.entries):
        if key in protected:
            protected[key] = value.lower()
        elif key in {"BindPaths", "BindReadOnlyPaths"}:
            for word in words_of(value):
                path = word.lstrip("-+").replace("%%", "%")
                shown |= {path, *path.split(":")[:2]}
    if protected["ProtectHome"] in {*_NO, "read-only"}:
        shown |= {*_HIDDEN}
    if protected["PrivateTmp"] in _NO:
        shown |= {*PRIVATE}
    return frozenset(shown)


def opened(applied: Applied) -> tuple[str, ...]:
    """Return every path that leads to a file that the engine of `applied` opens."""
    model = () if applied.model_path is None else (applied.model_path,)
    return (*model, *applied.companions, *applied.files, *applied.places)


def is_concealed(path: str) -> bool:
    """Tell whether `path` is hidden from a unit unless a mount shows it."""
    return _hidden(path) or any(path.startswith(f"{top}/") for top in PRIVATE)


def sight_of(path: str, view: Iterable[str]) -> Sight:
    """Return the visibility of `path` inside a unit with this `view`."""
    if not is_concealed(path):
        return Sight.SHOWN
    if any(path == shown or path.startswith(f"{shown}/") for shown in view):
        return Sight.SHOWN
    if path in _HIDDEN or any(shown.startswith(f"{path}/") for shown in view):
        return Sight.PASSED
    return Sight.HIDDEN


def _shown(read: Iterable[str], programs: Iterable[str]) -> set[str]:
    """Return the paths in homes that a unit must show so that these files can be read and run."""
    shown = {p for p in read if _hidden(p)} | {_installation(p) for p in programs} - {""}
    return {p for p in shown if not any(p.startswith(f"{other}/") for other in shown)}


def _each(key: str, paths: Iterable[str]) -> Entries:
    return tuple((key, path_word(path, "-")) for path in paths)


def _hidden(path: str) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in _HIDDEN)


def _installation(program: str) -> str:
    """Return the directory to show for `program`: its prefix, or its own; empty: not in a home."""
    if not _hidden(program):
        return ""
    directory = program.rpartition("/")[0]
    prefix, _, last = directory.rpartition("/")
    return prefix if last == "bin" and prefix.count("/") > _HOME_DEPTH else directory
