"""Ports of the processes to what is outside, each with a real adapter and a fake.

Implementations translate foreign errors into `appliance.model.errors` and bound every wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    # A process that uses one port does not load what the others name.
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from appliance.model.claims import Claim
    from appliance.model.engine_build import EngineBuild
    from appliance.model.gateway import EngineLoad, EngineMetrics, State
    from appliance.model.memory import GpuMemory, GroupMemory, HostMemory
    from appliance.model.observed import Observed, RunReport
    from appliance.model.operations import Finished, HoldUntil, Operation, RunCaller
    from appliance.model.profile import Applied, Catalogue
    from appliance.model.running_facts import SelfDescription
    from appliance.model.words import Mark
    from appliance.switch.goals import Writes
    from appliance.switch.memory.peak import ObservedPeak
    from appliance.switch.preflight_facts import BoxFacts, ProfileFacts
    from appliance.wire.lane import LaneOutcome


class Clock(Protocol):
    """Clock; a fake lets tests pass time."""

    def unix_s(self) -> float:
        """Return the wall clock's seconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Return the seconds of a clock that never goes back."""
        ...


class Change(Protocol):
    """Next change of the observed units: taken before an observation, awaited after it."""

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a change since this was taken; False: `timeout_s` passed without one."""
        ...

    def has_happened(self) -> bool:
        """Tell whether something has changed since this was taken."""
        ...


class Units(Protocol):
    """The systemd units of this appliance. Every method may raise `UnitError`."""

    async def observe(self, names: Iterable[str], *, full: bool = False) -> Observed:
        """Observe the units of the profiles `names`, hold and run, and whether the system goes down.

        Args:
            names: Profiles.
            full: Also the properties that only people read: status text, time of the start.
        """
        ...

    async def control_group(self, name: str) -> str:
        """Return the control group of profile `name` in systemd's tree; empty: no process runs."""
        ...

    async def cpu_s(self, name: str) -> float | None:
        """Return the CPU time that the processes of profile `name` have used; None: not counted."""
        ...

    @property
    def signals(self) -> int:
        """Return how often systemd signalled anything about the observed units, hold or run."""
        ...

    @property
    def boot_id(self) -> str:
        """Return the id of this boot; a container's boots have different ones too."""
        ...

    def change(self) -> Change:
        """Return the next change of any unit of ours."""
        ...

    async def start(self, name: str) -> None:
        """Queue a start of profile `name`, whose earlier starts do not count; does not wait."""
        ...

    async def stop(self, name: str) -> None:
        """Queue a stop of profile `name`; does not wait."""
        ...

    async def ask_build(self, name: str) -> None:
        """Have the program of profile `name` run for its build; returns when that run has ended."""
        ...

    async def start_run(self) -> None:
        """Queue a start of the unit that runs a command of an operator; does not wait."""
        ...

    async def stop_run(self) -> None:
        """Queue a stop of the unit that runs a command, with everything in it; does not wait."""
        ...

    async def start_hold(self) -> None:
        """Start the unit that conflicts with every backend; returns when it is active."""
        ...

    async def stop_hold(self) -> None:
        """Stop the unit that conflicts with every backend."""
        ...


class Backend(Protocol):
    """Engine that has reported that it is ready."""

    async def warm_up(self, applied: Applied, *, timeout_s: float) -> str:
        """Ask for one real answer and return the text to show. Raises `BackendError`."""
        ...

    async def load(self, applied: Applied) -> EngineLoad | None:
        """Return the load that the engine reports; None: none, or not within a few seconds."""
        ...

    async def metrics(self, applied: Applied) -> EngineMetrics | None:
        """Return the page of metrics of the engine; None: none, or not within a few seconds."""
        ...

    async def describe(self, applied: Applied) -> SelfDescription:
        """Return what the engine's pages tell about its settings, within a few seconds."""
        ...


class Gateway(Protocol):
    """Gateway. A call that the gateway does not answer is skipped and raises nothing.

    `hold`, `drain` and `release` return the text to show; None: the gateway does not answer.
    """

    def route(self, state: State) -> None:
        """Send the state to route by, also to a gateway that starts later; does not wait."""
        ...

    def reload(self) -> None:
        """Have the gateway read keys and profiles again; does not wait."""
        ...

    async def hold(self, names: Sequence[str]) -> str | None:
        """Hold new requests for these profiles."""
        ...

    async def drain(self, names: Sequence[str], timeout_s: float) -> str | None:
        """Let requests in flight finish, at most `timeout_s`; cancelled, it cuts none."""
        ...

    async def release(self, state: State) -> str | None:
        """Send the state to route by, and release held requests."""
        ...

    async def stats(self) -> Mapping[str, object] | None:
        """Return the gateway's counters as received; None: no answer at once."""
        ...

    async def requests(self) -> Mapping[str, object] | None:
        """Return the list of requests in flight and held as received; None: no answer at once."""
        ...

    async def cut(self, request: str) -> Mapping[str, object] | None:
        """End one request with an error for its client.

        Returns:
            The list with that request alone, an empty one where it is over; None: no answer.
        """
        ...


class LaneResponse(Protocol):
    """Response of an engine to a probe."""

    @property
    def sent_s(self) -> float:
        """Return when the gateway sent the request, in seconds of CLOCK_MONOTONIC."""
        ...

    @property
    def status(self) -> int:
        """Return the HTTP status; 0: no response head has come."""
        ...

    @property
    def outcome(self) -> LaneOutcome | None:
        """Return how the response has ended; None: not yet."""
        ...

    @property
    def detail(self) -> str:
        """Return why, for people; empty for a complete response."""
        ...

    def chunks(self) -> AsyncIterator[tuple[bytes, float]]:
        """Iterate over pieces of the body, each with its arrival at the gateway, up to the outcome.

        Iterated once. Invalid UTF-8 comes as U+FFFD. Never raises for a fault of engine or gateway.
        """
        ...


class LaneLease(Protocol):
    """Lease of the lane."""

    @property
    def token(self) -> str:
        """Return the header value by which the holder's own requests are known."""
        ...

    @property
    def requests(self) -> int:
        """Return how many requests of others have begun since the lease, as `traffic` last said."""
        ...

    @property
    def lost(self) -> str | None:
        """Return why the lease has ended; None: it lasts, as far as `traffic` has said."""
        ...

    def traffic(self) -> AsyncIterator[int]:
        """Iterate over the number of requests of others, whenever it grows, up to the lease's end.

        Iterated once, by one task.
        """
        ...


class ProbeLane(Protocol):
    """Lane of the gateway in which probes go to engines, behind every request of a client.

    Entering a context raises `LaneBusyError` if nothing was sent; leaving it early aborts the
    request, or ends the lease.
    """

    def send(
        self, profile: str, path: str, body: Mapping[str, object] | None, *, timeout_s: float
    ) -> AbstractAsyncContextManager[LaneResponse]:
        """Send a request to the engine of a profile that serves, while no client has any.

        Args:
            profile: The profile.
            path: Path of the engine's API.
            body: Value of the JSON body; None: a GET.
            timeout_s: Time for the whole response, at most 600.
        """
        ...

    def lease(
        self, names: Sequence[str], *, exclusive: bool
    ) -> AbstractAsyncContextManager[LaneLease]:
        """Keep probes away, and if exclusive the clients of these profiles, too.

        Args:
            names: Profiles that must serve.
            exclusive: New requests for them wait; entering waits for those in flight.
        """
        ...

    async def show_unresponsive(self, names: Sequence[str]) -> None:
        """Have the list of models say that these engines run and do not answer, until this is cancelled.

        Returns when the gateway is not there, or no longer: the call is then to be repeated.
        """
        ...


class Host(Protocol):
    """Machine. No method raises: facts that cannot be read are returned as unknown."""

    async def facts(self, applied: Applied) -> ProfileFacts:
        """Return the facts of the host about a start of this profile."""
        ...

    async def build(self, applied: Applied, *, certain: bool = False) -> EngineBuild | None:
        """Return the build of a profile's engine, from the last answer of its program.

        Args:
            applied: The profile.
            certain: Only if the program is seen to be unchanged since; else also where this process
                may not look at it.

        Returns:
            None: there was no answer, or the program was replaced since.
        """
        ...

    async def box(self, *, with_gpus: bool) -> BoxFacts:
        """Return facts about memory; the GPUs are read only when they matter."""
        ...

    async def ram(self) -> HostMemory:
        """Return main memory of the whole machine."""
        ...

    async def gpus(self) -> GpuMemory:
        """Return the GPUs and their processes; takes as long as the driver does, at most 30 s."""
        ...

    async def group(self, control_group: str) -> GroupMemory | None:
        """Return main memory of the processes in a unit's control group; None: there are none."""
        ...

    async def installed_unix_s(self, name: str) -> float | None:
        """Return when the unit of profile `name` was last written; None: not known."""
        ...

    async def gate_refusals(self) -> Mapping[str, str]:
        """Return the gate's reasons for its last refusals, by profile; admitted ones are absent."""
        ...

    async def admissions(self) -> Mapping[str, str]:
        """Return what the gate waited for before it last admitted a start, by profile."""
        ...

    async def run_report(self) -> RunReport | None:
        """Return the report on the last command; None: none, or the command still runs."""
        ...

    async def log_tail(self, name: str, lines: int, *, since_unix_s: float) -> Sequence[str]:
        """Return the last lines that the processes of profile `name` logged since then, oldest first."""
        ...

    async def log_head(self, name: str, *, since_unix_s: float) -> Sequence[str]:
        """Return the first lines that the processes of profile `name` logged since then."""
        ...


class Commitment(Protocol):
    """Files that a boot follows, for names and hold. Writes are durable when they return."""

    def committed(self) -> tuple[str, ...]:
        """Return the names to serve after a boot, sorted."""
        ...

    def hold_until(self) -> HoldUntil:
        """Return the hold that a boot keeps."""
        ...

    async def reserve(self, writes: Writes) -> None:
        """Reserve the room that `writes` need, so that a disk that fills up does not stop them.

        Raises:
            StoreError: there is no room; the attempt leaves nothing behind.
        """
        ...

    async def release(self) -> None:
        """Give back the room that was reserved and not used."""
        ...

    async def commit(self, names: Iterable[str]) -> None:
        """Replace the names. Raises `StoreError`; the old names then still stand."""
        ...

    async def set_hold(self, until: HoldUntil) -> None:
        """Replace the hold; None removes it. Raises `StoreError`."""
        ...


class RunTickets(Protocol):
    """Tickets that tell the launcher whose command it may run."""

    def issue(self, operation: int, caller: RunCaller, claim: Claim) -> None:
        """Admit the caller of one operation, and no other. Raises `StoreError`."""
        ...

    def revoke(self) -> None:
        """Remove the ticket, so that no caller is admitted. Never raises."""
        ...


class Store(Protocol):
    """Operations and marks. A broken store never blocks an operation: rows are lost instead."""

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
        """Return the operation that an earlier process left open."""
        ...

    async def last(self) -> Finished | None:
        """Return the operation that ended last."""
        ...

    async def finished(self, operation_id: int) -> Finished | None:
        """Return one operation that is over; None: not on record, or not over."""
        ...

    async def newest(self, most: int) -> Sequence[Finished]:
        """Return the operations that are over, newest first."""
        ...

    async def usual_ms(self, operation: Operation) -> float | None:
        """Return the median duration of like operations that were done; None: too few."""
        ...

    async def repairs(self, since_unix_s: float) -> Mapping[str, Sequence[float]]:
        """Return the Unix seconds of repairs that began since then, by profile."""
        ...

    async def marks(self) -> Mapping[str, Mark]:
        """Return the marks that operators have set, by profile."""
        ...

    async def set_mark(self, name: str, mark: Mark, *, by: str) -> None:
        """Replace a mark."""
        ...


class Peaks(Protocol):
    """Observed peaks of the backends. A record that cannot be written blocks nothing."""

    def peak(self, name: str) -> ObservedPeak | None:
        """Return the peak of profile `name`; None: none, or no readable record."""
        ...

    def peaks(self, names: Collection[str]) -> Mapping[str, ObservedPeak]:
        """Return the peaks of the profiles that have one."""
        ...

    async def record(self, name: str, peak: ObservedPeak) -> bool:
        """Replace the peak; False: it could not be written."""
        ...

    async def forget_all_but(self, names: Collection[str]) -> None:
        """Remove the peaks of profiles other than `names`. Never raises."""
        ...


class Profiles(Protocol):
    """Applied profiles."""

    @property
    def damage(self) -> str | None:
        """Return why `load` last read a copy of the manifest, for root; None: it read the manifest."""
        ...

    def load(self) -> Catalogue:
        """Read the manifest, or its copy. Raises `StoreError` if both are damaged; none is empty."""
        ...
