"""Facts that a preflight looks at, with the paths to the files that an engine opens, and its findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from appliance.model.engine_build import EngineBuild
from appliance.model.memory import DeviceMemory, GpuState, Holder
from appliance.switch.memory.requirement import MARGIN_BYTES
from appliance.switch.need import Source

GIB: Final = 1 << 30


class Level(StrEnum):
    """Weight of a finding."""

    OK = "ok"
    WARN = "warn"
    REFUSE = "refuse"


class Presence(StrEnum):
    """Presence of a file. UNKNOWN: this process may not look into its directory."""

    PRESENT = "present"
    MISSING = "missing"
    DAMAGED = "damaged"
    """File that exists and cannot be complete."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightFinding:
    """Finding of a preflight, as one sentence."""

    level: Level
    text: str
    source: Source | None = None
    """Source of the need that the sentence is about; None: the sentence is about something else."""
    wanted_bytes: int | None = None
    """Bytes of that need; None: unknown."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFacts:
    """Facts of the host about one profile."""

    model: Presence = Presence.PRESENT
    model_problem: str = ""
    """Phrase that says how the model is seen to be damaged; empty: no damage is known."""
    draft: Presence = Presence.PRESENT
    """Presence of the draft model."""
    missing_adapters: tuple[str, ...] = ()
    """Names of adapters that do not exist."""
    adapter_ranks: tuple[int | None, ...] = ()
    """Rank of each adapter in its own file, in the order of the profile; None: not known."""
    engine: Presence = Presence.PRESENT
    port_holder: str | None = None
    """Process that listens on the profile's port, in a phrase; None: none does."""
    edited: bool = False
    """Whether the profile's file is not the one that was applied."""
    model_bytes: int | None = None
    """Size of the model's file; None: not a single file, or not visible to this process."""
    build: EngineBuild | None = None
    """Build of the engine; None: not known, or never read from this engine."""
    access: AccessFacts | None = None
    """Paths to all files that the engine opens; None: the engine's user does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxFacts:
    """Facts about the host: memory and GPUs."""

    ram_total_bytes: int
    ram_available_bytes: int | None = None
    """Bytes of main memory that are available; None: not known."""
    gpu_error: str | None = None
    """Reason why some GPU cannot be read; None: all can (or there is no driver and none is
    needed)."""
    gpu_state: GpuState = GpuState.OK
    """State of all GPUs together; see `GpuMemory.state`."""
    devices: Mapping[int, DeviceMemory] = field(default_factory=dict)
    """GPUs that were read, by NVML index, including those that do not work."""
    margin_bytes: int = MARGIN_BYTES
    """Bytes that the gate keeps free beyond a declared or estimated need."""

    @property
    def gpu_total_bytes(self) -> Mapping[int, int]:
        """Return the size of each GPU that works, by NVML index."""
        return {i: d.total_bytes for i, d in self.devices.items() if d.state is GpuState.OK}

    @property
    def gpu_holders(self) -> Mapping[int, Sequence[Holder]]:
        """Return the processes with memory on each GPU, by index; absent: a GPU without a list."""
        return {i: d.holders for i, d in self.devices.items() if d.holders is not None}


def refuse(text: str) -> PreflightFinding:
    """Return a finding that refuses the operation."""
    return PreflightFinding(level=Level.REFUSE, text=text)


def warn(
    text: str, source: Source | None = None, wanted_bytes: int | None = None
) -> PreflightFinding:
    """Return a finding that warns and refuses nothing."""
    return PreflightFinding(level=Level.WARN, text=text, source=source, wanted_bytes=wanted_bytes)


def fine(
    text: str, source: Source | None = None, wanted_bytes: int | None = None
) -> PreflightFinding:
    """Return a finding that speaks for the operation."""
    return PreflightFinding(level=Level.OK, text=text, source=source, wanted_bytes=wanted_bytes)


def named(holder: Holder) -> str:
    """Return the text that names a holder: "python3 (pid 4121, session-3.scope, user ana)"."""
    facts = (f"pid {holder.pid}", holder.unit, f"user {holder.user or 'unknown'}")
    return f"{holder.comm or 'a process'} ({', '.join(filter(None, facts))})"


def amount_of(holder: Holder) -> str:
    """Return the size that a holder has: "2.0 GiB"; "memory" where the driver does not say."""
    return "memory" if holder.held_bytes is None else f"{holder.held_bytes / GIB:.1f} GiB"
