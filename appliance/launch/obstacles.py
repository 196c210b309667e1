"""Obstacles to a start, and the cheap checks for them: leases, remains of units, main memory.

The GPUs are checked by `appliance.launch.gpu_watch`.
"""

from __future__ import annotations

from appliance.model.names import unit_of
from appliance.model.paths import GATE_SCRIPT
from appliance.switch.memory import fit
from appliance.system.kernel.processes import (
    HoldingProcess,
    command_words,
    control_group,
    group_of_unit,
    holders_of_file,
    largest,
    processes_of,
    resident_bytes,
    unit_of_group,
)
from appliance.system.kernel.text_files import meminfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from appliance.launch.leases import LeaseLock
    from appliance.switch.memory.requirement import MemoryRequirement

    Amounts = Callable[[], Mapping[int, int]]


LEASE_GRACE_S = 3.0
"""Time for a held lease. Another gate or wrapper releases it in milliseconds, a killed rival in
seconds; if the rival serves, no wait until the memory's deadline helps."""
LARGE_BYTES = 256 << 20
"""Memory without a visible owner that is reported; less is the driver's own bookkeeping."""
_NAMED_HOLDERS = 3
_MOST_HOLDERS = 16
_CPU = "cpu"
_SLICE = "appliance.slice"
_LEASE = "lease"
_LEFT_OVER = "left over"
_MEMORY = "memory"
# Words of the command lines of the gate and of its child, which hold no device. The last one is
# of the release before, whose gate may still wait during an upgrade.
_GATE_WORDS = (f"/{GATE_SCRIPT}", "/gpus/sampler.py", "appliance.launch.gate")


class Obstacle:
    """Obstacle to a start.

    Args:
        status: Text to show while waiting.
        kind: Obstacles of one kind are one wait.
        patience_s: Longest wait for this obstacle; None: the gate's deadline.
        extra_s: Time beyond the gate's deadline, for an obstacle that is known to end.
        rival: Another process owns the claim, or the machine is too small: a restart by
            systemd would not help. False: memory is late, and a restart would.
        explain: Returns the sentence for a refusal; it looks for the holders, which takes a while.
    """

    __slots__ = ("explain", "extra_s", "kind", "patience_s", "rival", "status")

    def __init__(
        self,
        status: str,
        *,
        kind: str,
        explain: Callable[[], str],
        patience_s: float | None = None,
        extra_s: float = 0.0,
        rival: bool = False,
    ) -> None:
        self.status = status
        self.kind = kind
        self.explain = explain
        self.patience_s = patience_s
        self.extra_s = extra_s
        self.rival = rival

    @property
    def is_memory(self) -> bool:
        """Tell whether the start waits for memory."""
        return self.kind == _MEMORY


def held_lease(leases: Sequence[LeaseLock], amounts: Amounts) -> Obstacle | None:
    """Return the first lease that another process holds, or that cannot be checked.

    Args:
        leases: Of the claim.
        amounts: Returns each process's bytes on the GPUs; called for a refusal's sentence only.
    """
    for lease in leases:
        try:
            lease.create()
            free = lease.is_free()
        except OSError as error:  # a full or read-only /run may be better later
            text = f"{lease.name}: {error.strerror}: {lease.path}"
            return Obstacle(text, kind=_LEASE, explain=text.__str__)
        if not free:
            return _held(lease, amounts)
    return None


def _held(lease: LeaseLock, amounts: Amounts) -> Obstacle:
    return Obstacle(
        f"waiting for {lease.name}: another process holds it",
        kind=_LEASE,
        explain=lambda: lease_sentence(lease, amounts),
        patience_s=LEASE_GRACE_S,
        rival=True,
    )


def lease_sentence(lease: LeaseLock, amounts: Amounts = dict) -> str:
    """Return a sentence that names the holders of a lease, with their GPU memory from `amounts`.

    For the processor's lease their main memory is named.
    """
    found, held = holders_of_file(lease.path), amounts()
    for holder in found:
        holder.held_bytes = (
            resident_bytes(holder.pid) if lease.name == _CPU else held.get(holder.pid)
        )
    return f"{lease.name} is held by {joined(found) or 'a process that is not visible here'}"


def unit_groups(own: str, rivals: Iterable[str]) -> list[tuple[str, str]]:
    """Return units, and their control groups, that must be empty before unit `own` starts.

    systemd stops a rival first, but it gives up on a process that the kernel cannot end, and
    starts the next unit beside that process, which may hold no lease any more.
    """
    groups = [(unit, group_of_unit(unit, _SLICE)) for unit in rivals]
    ours = control_group("self")
    if own and unit_of_group(ours) == own:
        groups.append((own, ours))
    return groups


def left_over(groups: Iterable[tuple[str, str]], amounts: Amounts, *, own: str) -> Obstacle | None:
    """Return the first control group with processes of an earlier run, waiting gates apart."""
    for unit, group in groups:
        pids = [pid for pid in processes_of(group) if not _is_gate(pid)]
        if pids:
            return _left_over(unit, pids, amounts, rival=unit != own)
    return None


def _left_over(unit: str, pids: Sequence[int], amounts: Amounts, *, rival: bool) -> Obstacle:
    return Obstacle(
        f"waiting for {unit}: {_count(pids)} of it still there",
        kind=_LEFT_OVER,
        explain=lambda: _left_over_sentence(unit, pids, amounts),
        rival=rival,
    )


def _is_gate(pid: int) -> bool:
    words = command_words(pid)
    return not words or any(word.endswith(_GATE_WORDS) for word in words)


def _left_over_sentence(unit: str, pids: Sequence[int], amounts: Amounts) -> str:
    held = amounts()
    holders = (
        HoldingProcess(pid, held_bytes=held.get(pid) if held else resident_bytes(pid))
        for pid in pids
    )
    return f"{unit} has not ended: {joined(holders)}"


def _count(pids: Sequence[int]) -> str:
    return f"{len(pids)} process{'' if len(pids) == 1 else 'es'}"


class HostFigures:
    """Main memory at one instant."""

    __slots__ = ("available_bytes", "total_bytes")

    def __init__(self, *, available_bytes: int, total_bytes: int) -> None:
        self.available_bytes = available_bytes
        self.total_bytes = total_bytes


def read_host() -> HostFigures:
    """Return main memory now. Raises OSError when the kernel does not say."""
    total, available = meminfo()
    if not (total and available):
        raise OSError("the kernel does not say how much memory there is")
    return HostFigures(available_bytes=available, total_bytes=total)


def late_ram(requirement: MemoryRequirement, now: HostFigures) -> Obstacle | None:
    """Return the shortfall of main memory for a backend without GPUs; None: none."""
    short = next(fit.shortfalls(requirement, (), now), None)
    return None if short is None else late(short, lambda: ram_sentence(shortfall_sentence(short)))


def shortfall_sentence(short: fit.Shortfall) -> str:
    """Return a shortfall as one sentence for people."""
    # Most starts have no shortfall.
    from appliance.launch import shortfall_text  # noqa: PLC0415

    return shortfall_text.sentence_of(short)


def late(short: fit.Shortfall, explain: Callable[[], str], *, own: str = "") -> Obstacle:
    """Return the obstacle of missing memory.

    Args:
        short: The lack.
        explain: As in `Obstacle`.
        own: The unit that is to start: its own remains are no rival's.
    """
    text = shortfall_sentence(short)
    if short.final:
        return Obstacle(text, kind=_MEMORY, explain=text.__str__, patience_s=0.0, rival=True)
    rival = short.kind == fit.REMAINS and short.unit != own
    return Obstacle(text, kind=_MEMORY, explain=explain, rival=rival)


def awaited(status: str, sentence: str) -> Obstacle:
    """Return the obstacle of memory that is not proved free yet."""
    return Obstacle(status, kind=_MEMORY, explain=sentence.__str__)


def ram_sentence(text: str) -> str:
    """Return a sentence about missing main memory with the largest processes."""
    large = joined(largest(_NAMED_HOLDERS, at_least_bytes=LARGE_BYTES))
    return f"{text}; the largest processes are {large}" if large else text


def joined(holders: Iterable[HoldingProcess]) -> str:
    """Return holders in one phrase; beyond a certain number the rest are counted, not listed."""
    names = list(map(str, holders))
    more = len(names) - _MOST_HOLDERS
    return ", ".join([*names[:_MOST_HOLDERS], *([f"{more} more"] if more > 0 else [])])


def rival_units(names: Iterable[str]) -> frozenset[str]:
    """Return the units of the profiles `names`."""
    return frozenset(map(unit_of, names))
