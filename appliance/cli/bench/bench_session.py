"""Session of a bench: blocks of profiles in turns, each served, leased and measured.

Profiles that cannot serve together are switched between blocks. What was committed before serves
again in the end, also after a failure.

The health agent leases the box while it measures: its probes pause, and it reports real requests, which make the figures
worthless, so without ``--exclusive`` the first one ends the bench. Without a health agent a bench runs unwatched, and
says so.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from appliance import __version__
from appliance.cli.bench.bench_screen import BenchProgress
from appliance.cli.bench.load_generator import LoadGenerator
from appliance.cli.box import read_status
from appliance.cli.failures import CliError
from appliance.cli.operation_follower import OperationFollower, exit_status
from appliance.cli.paths import Places
from appliance.cli.progress_lines import Progress
from appliance.model.errors import ApplianceError, UnreachableError
from appliance.model.measurements import BoxGpus
from appliance.model.profile import Applied
from appliance.speed.bench_plan import Stage, Workload, stages
from appliance.speed.bench_report import BenchOutcome, Block
from appliance.system.front_client import FrontClient
from appliance.wire.async_client import open_conversation
from appliance.wire.client import Conversation
from appliance.wire.control import Exit
from appliance.wire.control_requests import CONTROL, SwitchRequest
from appliance.wire.conversation import ErrorEvent, RequestRefusedError, ResultEvent
from appliance.wire.health_socket import (
    HEALTH,
    HealthEvent,
    LeasedEvent,
    LeaseLostEvent,
    LeaseRequest,
    LeaseTrafficEvent,
)
from appliance.wire.lane import TOKEN_HEADER
from appliance.wire.status_socket import STATUS, GpuEvidenceRequest
from appliance.wire.typed_json import from_json

_LEASED_WITHIN_S: Final = 330.0
"""Time for the lease: an exclusive one waits for the requests in flight, as long as clients may wait."""


class BenchLease:
    """Lease of one block, or its absence."""

    def __init__(self, token: str, *, exclusive: bool, absent: str = "") -> None:
        self.headers: Mapping[str, str] = {TOKEN_HEADER: token} if token else {}
        """Headers by which the gateway knows the bench's own requests."""
        self.absent = absent
        """Reason why there is no lease; empty: there is one."""
        self.requests = 0
        """Requests of others since the lease began."""
        self._exclusive = exclusive
        self._spoilt: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def spoilt(self) -> str:
        """Wait until the figures are worthless, and return the reason."""
        return await asyncio.shield(self._spoilt)

    def note(self, event: HealthEvent) -> None:
        """Take an event of the lease."""
        if isinstance(event, LeaseTrafficEvent):
            self.requests = event.requests
            if not self._exclusive:
                self.spoil(f"{event.requests} real requests came meanwhile")
        elif isinstance(event, LeaseLostEvent):
            self.spoil(f"the lease ended: {event.message}")

    def spoil(self, reason: str) -> None:
        """Make the figures worthless, for the first reason that is given."""
        if not self._spoilt.done():
            self._spoilt.set_result(reason)


@asynccontextmanager
async def bench_lease(
    path: Path, names: Sequence[str], *, exclusive: bool
) -> AsyncIterator[BenchLease]:
    """Hold a lease as long as the block lasts.

    Args:
        path: The health agent's socket.
        names: Profiles that are measured.
        exclusive: Let real requests to them wait.

    Raises:
        UnreachableError: no health agent answers, and the lease must be exclusive.
        RequestRefusedError: there is another lease, or a profile does not serve.
        PermissionDeniedError: this user may not open the socket.
    """
    request = LeaseRequest(names=tuple(names), exclusive=exclusive, text="appliance bench")
    async with AsyncExitStack() as stack:
        try:
            events = await stack.enter_async_context(open_conversation(HEALTH, path, request))
        except UnreachableError as error:
            if exclusive:
                raise
            yield BenchLease("", exclusive=False, absent=str(error))
            return
        lease = BenchLease(await _token(events), exclusive=exclusive)
        watching = asyncio.create_task(_watch(events, lease))
        try:
            yield lease
        finally:
            watching.cancel()
            await asyncio.wait([watching])


async def _token(events: AsyncGenerator[HealthEvent, None]) -> str:
    """Return the token of the lease once it has begun."""
    try:
        async with asyncio.timeout(_LEASED_WITHIN_S):
            async for event in events:
                if isinstance(event, LeasedEvent):
                    return event.token
                if isinstance(event, ErrorEvent):
                    raise RequestRefusedError(event)
                if isinstance(event, LeaseLostEvent):
                    raise UnreachableError(f"no lease: {event.message}")
    except TimeoutError as error:
        raise UnreachableError("the health agent gave no lease in time") from error
    raise UnreachableError(HEALTH.not_our_protocol)


async def _watch(events: AsyncGenerator[HealthEvent, None], lease: BenchLease) -> None:
    with suppress(asyncio.CancelledError):
        try:
            async for event in events:
                lease.note(event)
        except UnreachableError as error:
            lease.spoil(f"the lease ended: {error}")
        else:
            lease.spoil("the lease ended")


_EVERY_S: Final = 5.0
_WITHIN_S: Final = 10.0


class BlockEvidence:
    """Readings of one block; None: not read."""

    def __init__(self) -> None:
        self.before: BoxGpus | None = None
        self.loaded: BoxGpus | None = None
        """Last one while the profile was at work."""
        self.after: BoxGpus | None = None


@asynccontextmanager
async def watched_gpus(
    path: Path, applied: Applied, *, every_s: float = _EVERY_S
) -> AsyncIterator[BlockEvidence]:
    """Read a profile's GPUs before, during and after a block.

    Args:
        path: The status socket.
        applied: The profile; one that uses no GPU is not watched.
        every_s: Pause between two readings.
    """
    watch = BlockEvidence()
    watch.before = await read_gpus(path, applied)
    if watch.before is None:
        yield watch
        return

    async def sample() -> None:
        while True:
            await asyncio.sleep(every_s)
            watch.loaded = await read_gpus(path, applied) or watch.loaded

    sampling = asyncio.create_task(sample())
    try:
        yield watch
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        watch.after = await read_gpus(path, applied)


async def read_gpus(path: Path, applied: Applied) -> BoxGpus | None:
    """Return the state of a profile's GPUs.

    Returns:
        None: it uses none, this user may not open the socket, or the supervisor does not answer.
    """
    if not applied.gpus:
        return None
    try:
        async with (
            asyncio.timeout(_WITHIN_S),
            open_conversation(STATUS, path, GpuEvidenceRequest()) as events,
        ):
            async for event in events:
                if isinstance(event, ResultEvent):
                    found = from_json(BoxGpus, event.details)
                    gpus = applied.gpus
                    own = tuple(g for g in found.gpus if gpus == "all" or g.index in gpus)
                    return replace(found, gpus=own)
    except (ApplianceError, TimeoutError, ValueError):
        return None
    return None


_TICK_S: Final = 1.0
_NO_LEASE: Final = "nothing keeps probes away, and real requests go unnoticed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOrder:
    """Order for a bench."""

    profiles: Sequence[Applied]
    workload: Workload
    """Work of one block."""
    order: Sequence[int]
    """Numbers of the profiles, block by block."""
    exclusive: bool

    def stages_of(self, block: int) -> Sequence[Stage]:
        """Return the stages of a block; no two blocks have runs of the same number."""
        return stages(self.workload, first_run=1 + block * self.workload.runs)

    @property
    def plan(self) -> Sequence[tuple[str, Stage]]:
        """Return profile and stage of everything, in its order."""
        return [
            (self.profiles[number].name, stage)
            for block, number in enumerate(self.order)
            for stage in self.stages_of(block)
        ]


class BenchSession:
    """Session of one bench.

    Args:
        order: What to measure.
        places: Sockets and files of the box.
        client: Client of the gateway.
        progress: Display for people.
        switching: Display of switches.
    """

    def __init__(
        self,
        order: BenchOrder,
        places: Places,
        client: FrontClient,
        *,
        progress: BenchProgress,
        switching: Progress,
    ) -> None:
        self._order = order
        self._places = places
        self._client = client
        self._progress = progress
        self._switching = switching
        self._began_s = time.monotonic()
        self._blocks: list[Block] = []
        self._leased = True
        self._spoilt = ""
        self._evidence = BlockEvidence()
        self.interrupted = False
        """Whether Ctrl-C has ended the bench, whose outcome is what was measured until then."""

    def run(self) -> BenchOutcome:
        """Measure every block, and return the outcome; less than ordered if the box was not ours, or after Ctrl-C.

        Raises:
            CliError: a profile does not serve, or a switch failed.
            UnreachableError: there is no health agent, and the lease must be exclusive.
            RequestRefusedError: there is another lease.
            PermissionDeniedError: this user is no operator.
        """
        began_unix_s = time.time()
        committed = tuple(read_status(self._places).committed)
        try:
            for block, number in enumerate(self._order.order):
                applied = self._order.profiles[number]
                self._serve(applied.name)
                self._measure(applied, self._order.stages_of(block))
                if self._spoilt:
                    break
        except KeyboardInterrupt:
            self._interrupt()
        except CliError as error:  # of a switch that goes on
            if error.status != Exit.DETACHED:
                raise
            self._interrupt()
        finally:
            self._progress.end()
            self._restore(committed)
        local = time.localtime(began_unix_s)
        return BenchOutcome(
            version=__version__,
            began_unix_s=began_unix_s,
            date=time.strftime("%Y%m%d-%H%M%S", local),
            test_time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began_unix_s)),
            workload=self._order.workload,
            order=self._order.order,
            blocks=self._blocks,
            leased=self._leased,
            exclusive=self._order.exclusive,
            invalid=self._spoilt,
        )

    def _interrupt(self) -> None:
        done = sum(len(block.rows) for block in self._blocks)
        ordered = sum(len(stage.prompts) for _, stage in self._order.plan)
        self.interrupted = True
        self._spoilt = f"interrupted after {done} of {ordered} requests"

    def _restore(self, committed: Sequence[str]) -> None:
        for name in committed:
            try:
                self._serve(name, again=True)
            except CliError as error:
                if not self.interrupted:
                    raise
                self._progress.say(str(error))  # the figures are printed all the same

    def _serve(self, name: str, *, again: bool = False) -> None:
        """Make sure that a profile serves; of several, by a switch."""
        state = {row.name: row.state for row in read_status(self._places).profiles}
        if state.get(name) == "serving":
            return
        if len(self._order.profiles) == 1:
            if again:
                return
            raise CliError(f"{name} is {state.get(name)}: appliance switch {name}", Exit.FAILED)
        self._progress.say(f"switching {'back ' if again else ''}to {name}")
        path = self._places.control_socket
        follower = OperationFollower(
            Conversation(CONTROL, path, SwitchRequest(name=name)),
            path,
            progress=self._switching,
            raw=None,
        )
        closing = follower.follow()
        if closing is not None and exit_status(closing) != Exit.OK:
            raise CliError(f"no switch to {name}: {closing.message}", exit_status(closing))

    def _measure(self, applied: Applied, block: Sequence[Stage]) -> None:
        """Measure one block, and keep what was measured of it even if its end is never reached."""
        generator = LoadGenerator(
            self._client, applied, began_s=self._began_s, report=self._progress.show
        )
        self._evidence = BlockEvidence()
        try:
            asyncio.run(self._load(generator, applied, block))
        finally:
            if generator.rows:
                self._blocks.append(
                    Block(
                        profile=applied.name,
                        rows=tuple(generator.rows),
                        answers=generator.answers,
                        gpus_before=self._evidence.before,
                        gpus_loaded=self._evidence.loaded,
                        gpus_after=self._evidence.after,
                    )
                )

    async def _load(
        self, generator: LoadGenerator, applied: Applied, block: Sequence[Stage]
    ) -> None:
        health, status = Path(self._places.health_socket), Path(self._places.status_socket)
        exclusive = self._order.exclusive
        async with bench_lease(health, [applied.name], exclusive=exclusive) as lease:
            if lease.absent and self._leased:
                self._leased = False
                self._progress.say(f"warning: {_NO_LEASE}: {lease.absent}")
            async with watched_gpus(status, applied) as self._evidence:
                await self._until_spoilt(generator, block, lease)

    async def _until_spoilt(
        self, generator: LoadGenerator, block: Sequence[Stage], lease: BenchLease
    ) -> None:
        """Send the load; stop at once when its figures have become worthless."""
        load = asyncio.create_task(generator.run(block, lease.headers))
        spoilt = asyncio.create_task(lease.spoilt())
        try:
            first = asyncio.FIRST_COMPLETED
            while not (await asyncio.wait({load, spoilt}, timeout=_TICK_S, return_when=first))[0]:
                self._progress.tick()
            if spoilt.done():
                self._spoilt = spoilt.result()
            else:
                load.result()
        finally:
            for task in (load, spoilt):
                task.cancel()
            await asyncio.wait({load, spoilt})
