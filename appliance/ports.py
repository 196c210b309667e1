"""What the services need from the outside world.

Implementations translate foreign errors into `appliance.domain.errors` and bound every wait.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from appliance.domain.claims import Claim
from appliance.domain.gateway import EngineLoad, State
from appliance.domain.memory import GpuMemory, GroupMemory, HostMemory
from appliance.domain.observed import Observed, RunReport
from appliance.domain.operations import Finished, HoldUntil, Operation, RunCaller
from appliance.domain.profile import Applied, Catalogue, Mark
from appliance.planning.admission.preflight import BoxFacts, ProfileFacts
from appliance.planning.memory.peak import ObservedPeak
from appliance.planning.switch.goals import Writes


class Clock(Protocol):
    """Time, so that tests can make it pass."""

    def unix_s(self) -> float:
        """Wall clock, seconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """A clock that never goes back, in seconds."""
        ...


class Change(Protocol):
    """A promise to notice: taken before an observation, awaited after it."""

    async def wait(self, timeout_s: float) -> bool:
        """Tell whether something changed since this was taken; False: `timeout_s` passed."""
        ...

    def has_happened(self) -> bool:
        """Tell whether something has changed since this was taken."""
        ...


class Units(Protocol):
    """The systemd units of this appliance. Every method may raise `UnitError`."""

    async def observe(self, names: Iterable[str], *, full: bool = False) -> Observed:
        """The units of the profiles `names`, hold and run, and whether the system goes down.

        Args:
            names: Profiles.
            full: Also what only a person wants to know: what it says, since when.
        """
        ...

    async def control_group(self, name: str) -> str:
        """Return where the processes of profile `name` are, in systemd's tree; empty: it runs none."""
        ...

    async def cpu_s(self, name: str) -> float | None:
        """CPU time that the processes of profile `name` have used; None: not counted."""
        ...

    @property
    def signals(self) -> int:
        """How often anything was signalled about units that were observed, hold or run."""
        ...

    @property
    def boot_id(self) -> str:
        """Changes with every boot, also with that of a container."""
        ...

    def change(self) -> Change:
        """Notices the next change of any unit of ours."""
        ...

    async def clear_start_limit(self, name: str) -> None:
        """Make systemd forget earlier starts of profile `name`; needed before each start."""
        ...

    async def start(self, name: str) -> None:
        """Queue a start of profile `name`; does not wait."""
        ...

    async def stop(self, name: str) -> None:
        """Queue a stop of profile `name`; does not wait."""
        ...

    async def start_run(self) -> None:
        """Queue a start of the unit that runs a command of an operator; does not wait."""
        ...

    async def stop_run(self) -> None:
        """Queue a stop of that unit, with everything that runs in it; does not wait."""
        ...

    async def start_hold(self) -> None:
        """Start the unit that conflicts with every backend; returns when it is active."""
        ...

    async def stop_hold(self) -> None:
        """Stop that unit."""
        ...


class Backend(Protocol):
    """A model server that has said it is ready."""

    async def warm_up(self, applied: Applied, *, timeout_s: float) -> str:
        """Ask for one real answer. Returns what to show; raises `BackendError`."""
        ...

    async def load(self, applied: Applied) -> EngineLoad | None:
        """Return what it says about its own queue; None: nothing, or not within a few seconds."""
        ...


class Gateway(Protocol):
    """The one address that clients keep. What it cannot be told it does without, and so do we.

    `hold`, `drain` and `release` return what to show; None: skipped, because nobody answers.
    """

    def route(self, state: State) -> None:
        """Serve by this from now on; does not wait. A gateway that comes later is told too."""
        ...

    def reload(self) -> None:
        """Let it read keys and profiles again; does not wait."""
        ...

    async def hold(self, names: Sequence[str]) -> str | None:
        """Let new requests for these profiles wait."""
        ...

    async def drain(self, names: Sequence[str], timeout_s: float) -> str | None:
        """Let requests in flight finish, at most `timeout_s`; cancelled, it cuts none."""
        ...

    async def release(self, state: State) -> str | None:
        """Serve by this, and let held requests go."""
        ...

    async def stats(self) -> Mapping[str, object] | None:
        """Return what it has measured, as it says it; None: it does not answer at once."""
        ...


class Host(Protocol):
    """The machine. None of these raise: what cannot be read is said to be unknown."""

    async def facts(self, applied: Applied) -> ProfileFacts:
        """Return what speaks for or against starting this profile."""
        ...

    async def box(self, *, with_gpus: bool) -> BoxFacts:
        """Return how much memory there is; the GPUs are asked only when they matter."""
        ...

    async def ram(self) -> HostMemory:
        """Main memory of the whole machine."""
        ...

    async def gpus(self) -> GpuMemory:
        """The GPUs and who holds their memory; takes as long as the driver does, at most 30 s."""
        ...

    async def group(self, control_group: str) -> GroupMemory | None:
        """Main memory of the processes in a unit's control group; None: there are none."""
        ...

    async def installed_unix_s(self, name: str) -> float | None:
        """Return when the unit of profile `name` was last written; None: not known."""
        ...

    async def refusals(self) -> Mapping[str, str]:
        """Return what the gate said when it last refused, by profile; admitted ones are absent."""
        ...

    async def admissions(self) -> Mapping[str, str]:
        """Return what the gate waited for before it last admitted a start, by profile."""
        ...

    async def run_report(self) -> RunReport | None:
        """Return what the launcher of the last command left; None: nothing, or it still runs."""
        ...

    async def log_tail(self, name: str, lines: int, *, since_unix_s: float) -> Sequence[str]:
        """The last lines that the processes of profile `name` logged since then, oldest first."""
        ...


class Commitment(Protocol):
    """The two files that a boot follows. Writes are durable when they return."""

    def committed(self) -> tuple[str, ...]:
        """Names to serve after a boot, sorted."""
        ...

    def hold_until(self) -> HoldUntil:
        """The hold that a boot shall keep."""
        ...

    async def reserve(self, writes: Writes) -> None:
        """Take now the room that `writes` needs, whatever fills the disk until they are made.

        Raises:
            StoreError: there is none; nothing is kept of the attempt.
        """
        ...

    async def release(self) -> None:
        """Give back what was reserved and not used."""
        ...

    async def commit(self, names: Iterable[str]) -> None:
        """Replace the names. Raises `StoreError`; the old names then still stand."""
        ...

    async def set_hold(self, until: HoldUntil) -> None:
        """Replace the hold; None removes it. Raises `StoreError`."""
        ...


class RunTickets(Protocol):
    """Whose command the launcher may run."""

    def issue(self, operation: int, caller: RunCaller, claim: Claim) -> None:
        """Admit the caller of one operation, and nobody else. Raises `StoreError`."""
        ...

    def revoke(self) -> None:
        """Admit nobody any more. Never raises."""
        ...


class Store(Protocol):
    """Operations and marks. A broken store never blocks an operation: it forgets instead."""

    async def begin(self, operation: Operation) -> Operation:
        """Add a row; returns the operation with its id."""
        ...

    def update(self, operation: Operation) -> None:
        """Replace the row's phase, direction and reason, soon and in order; does not wait."""
        ...

    async def finish(self, finished: Finished) -> None:
        """Close the row."""
        ...

    async def unfinished(self) -> Operation | None:
        """The operation that an earlier process left open."""
        ...

    async def last(self) -> Finished | None:
        """The operation that ended last."""
        ...

    async def finished(self, operation_id: int) -> Finished | None:
        """One operation that is over; None: not on record, or not over."""
        ...

    async def usual_ms(self, operation: Operation) -> float | None:
        """Median duration of like operations that were done; None: too few."""
        ...

    async def repairs(self, since_unix_s: float) -> Mapping[str, Sequence[float]]:
        """Unix seconds of repairs that began since then, by profile."""
        ...

    async def marks(self) -> Mapping[str, Mark]:
        """Marks set by people, by profile."""
        ...

    async def set_mark(self, name: str, mark: Mark, *, by: str) -> None:
        """Replace a mark."""
        ...


class Peaks(Protocol):
    """The most that each backend was seen to hold. Keeping it may fail, and blocks nothing."""

    def peak(self, name: str) -> ObservedPeak | None:
        """Return what was recorded for profile `name`; None: nothing that can be used."""
        ...

    async def record(self, name: str, peak: ObservedPeak) -> bool:
        """Replace it; False: it could not be kept."""
        ...

    async def forget_all_but(self, names: Collection[str]) -> None:
        """Remove the peaks of profiles other than `names`. Never raises."""
        ...


class Profiles(Protocol):
    """The applied profiles."""

    @property
    def damage(self) -> str | None:
        """Why `load` last read a copy of the manifest, for root; None: it read the manifest."""
        ...

    def load(self) -> Catalogue:
        """Read the manifest, or its copy. Raises `StoreError` if both are damaged; none is empty."""
        ...
