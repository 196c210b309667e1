"""Typed in-memory ports of the supervisor, other than `Units` and `Clock`."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from appliance.model.claims import Claim
from appliance.model.engine_build import EngineBuild
from appliance.model.errors import BackendError, StoreError
from appliance.model.gateway import EngineLoad, EngineMetrics, Standing, State
from appliance.model.memory import GpuMemory, GroupMemory, HostMemory
from appliance.model.names import unit_of
from appliance.model.observed import RunReport
from appliance.model.operations import (
    Finished,
    HoldUntil,
    Kind,
    Operation,
    Outcome,
    Phase,
    RunCaller,
)
from appliance.model.profile import Applied, WarmUp
from appliance.model.running_facts import SelfDescription
from appliance.model.words import Mark
from appliance.switch.goals import Writes
from appliance.switch.memory.peak import ObservedPeak
from appliance.switch.preflight_facts import BoxFacts, ProfileFacts
from tests.fakes.gpu_readings import by_index, card
from tests.fakes.unit_processes import UnitProcesses


class FakeBackend:
    """The port `Backend`: warm unless named in `cold`; mute for ever when named in `hangs`."""

    def __init__(self) -> None:
        self.hangs: set[str] = set()
        self.cold: set[str] = set()
        self.asked: list[str] = []
        self.loads: dict[str, EngineLoad] = {}
        self.pages: dict[str, EngineMetrics] = {}
        self.described: dict[str, SelfDescription] = {}
        """Reports of engines about themselves, by profile."""
        self.answers = asyncio.Event()
        self.answers.set()

    async def warm_up(self, applied: Applied, *, timeout_s: float) -> str:
        await asyncio.sleep(0)
        if applied.warm_up is WarmUp.NONE:
            return "not asked for"
        self.asked.append(applied.name)
        if applied.name in self.hangs:
            await asyncio.get_running_loop().create_future()
        if applied.name in self.cold:
            raise BackendError(f"no answer within {timeout_s:.0f} s")
        return "answered in 0.01 s"

    async def load(self, applied: Applied) -> EngineLoad | None:
        await self.answers.wait()
        return self.loads.get(applied.name)

    async def metrics(self, applied: Applied) -> EngineMetrics | None:
        await self.answers.wait()
        return self.pages.get(applied.name)

    async def describe(self, applied: Applied) -> SelfDescription:
        await asyncio.sleep(0)
        return self.described.get(applied.name, SelfDescription())


class FakeGateway:
    """The port `Gateway`: remembers what it was asked. `away`: it answers nothing."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.states: list[State] = []
        self.reloads = 0
        self.away = False
        self.figures: dict[str, dict[str, object]] = {}
        """Figures that the gateway has measured, by profile."""
        self.listening: dict[str, object] | None = None
        """Where the gateway listens; None: it does not say."""
        self.listed: dict[str, dict[str, object]] = {}
        """Rows of requests in flight and held, by id."""
        self.questions = 0
        """Count of requests for the figures."""
        self.drains = asyncio.Event()
        self.drains.set()

    @property
    def state(self) -> State:
        """Return the state that the gateway routes by."""
        return self.states[-1]

    def route(self, state: State) -> None:
        if not self.states or self.states[-1] != state:
            self.states.append(state)

    def reload(self) -> None:
        self.reloads += 1

    async def hold(self, names: Sequence[str]) -> str | None:
        return self._answer(f"hold {' '.join(names)}", "3 requests wait")

    async def drain(self, names: Sequence[str], timeout_s: float) -> str | None:
        told = self._answer(f"drain {' '.join(names)} {timeout_s:g}", "2 finished")
        await self.drains.wait()
        return told

    async def release(self, state: State) -> str | None:
        self.route(state)
        serving = [n for n, s in state.standings.items() if s is Standing.SERVING]
        return self._answer(f"release {' '.join(serving)}", "3 requests go on")

    async def stats(self) -> Mapping[str, object] | None:
        self.questions += 1
        if self.away:
            return None
        told: dict[str, object] = {"uptime_s": 1.0, "profiles": self.figures, "keys": {}}
        return told if self.listening is None else told | {"listening": self.listening}

    async def requests(self) -> Mapping[str, object] | None:
        return None if self.away else {"requests": list(self.listed.values()), "left_off": 0}

    async def cut(self, request: str) -> Mapping[str, object] | None:
        if self.away:
            return None
        row = self.listed.pop(request, None)
        return {"requests": [] if row is None else [row], "left_off": 0}

    def _answer(self, call: str, text: str) -> str | None:
        self.calls.append(call)
        return None if self.away else text


class FakeHost:
    """The port `Host`."""

    def __init__(self, processes: UnitProcesses, starts: Sequence[str] = ()) -> None:
        self._processes = processes
        self._starts = starts
        self.profile_facts: dict[str, ProfileFacts] = {}
        self.admitted: dict[str, str] = {}
        self.box_facts = BoxFacts(ram_total_bytes=32 << 30)
        """Facts about main memory and the margin; those about GPUs come from their reading."""
        self.gpu_memory = GpuMemory(devices=(card(0), card(1)))
        self.gpus_after_start: GpuMemory | None = None
        """Reading of the GPUs once a backend was started; None: as before."""
        self.gpu_readings = 0
        self.driver_answers = asyncio.Event()
        self.driver_answers.set()
        self.files_answer = asyncio.Event()
        """Cleared: a file system that takes its time."""
        self.files_answer.set()
        self.builds: dict[str, EngineBuild] = {}
        """Answers of engines about their builds, by profile."""
        self.unseen_programs: set[str] = set()
        """Profiles whose program this process may not look at."""
        self.groups: dict[str, GroupMemory] = {}
        self.installed: dict[str, float | None] = {}
        self.log_heads: dict[str, Sequence[str]] = {}
        """First lines that engines log, by profile."""

    async def build(self, applied: Applied, *, certain: bool = False) -> EngineBuild | None:
        unseen = certain and applied.name in self.unseen_programs
        return None if unseen else self.builds.get(applied.name)

    async def facts(self, applied: Applied) -> ProfileFacts:
        await self.files_answer.wait()
        return self.profile_facts.get(applied.name, ProfileFacts())

    async def box(self, *, with_gpus: bool) -> BoxFacts:
        if not with_gpus:
            return self.box_facts
        gpus = self._reading()
        return replace(
            self.box_facts,
            gpu_error=gpus.reason,
            gpu_state=gpus.state,
            devices=by_index(*gpus.devices),
        )

    async def ram(self) -> HostMemory:
        return HostMemory(total_bytes=self.box_facts.ram_total_bytes, available_bytes=16 << 30)

    async def gpus(self) -> GpuMemory:
        await self.driver_answers.wait()
        self.gpu_readings += 1
        return self._reading()

    def _reading(self) -> GpuMemory:
        return self.gpus_after_start if self._starts and self.gpus_after_start else self.gpu_memory

    async def group(self, control_group: str) -> GroupMemory | None:
        await asyncio.sleep(0)
        unit = control_group.rpartition("/")[2]
        return next((g for n, g in self.groups.items() if unit_of(n) == unit), None)

    async def installed_unix_s(self, name: str) -> float | None:
        return self.installed.get(name, 0.0)

    async def gate_refusals(self) -> Mapping[str, str]:
        return dict(self._processes.refusals)

    async def admissions(self) -> Mapping[str, str]:
        return dict(self.admitted)

    async def run_report(self) -> RunReport | None:
        return self._processes.command.report

    async def log_tail(self, name: str, lines: int, *, since_unix_s: float) -> Sequence[str]:  # noqa: ARG002
        return [f"last words of {name}"][:lines]

    async def log_head(self, name: str, *, since_unix_s: float) -> Sequence[str]:  # noqa: ARG002
        return self.log_heads.get(name, ())


class FakeRunTickets:
    """The port `RunTickets`: the one that stands, if any."""

    def __init__(self) -> None:
        self.issued: tuple[int, RunCaller, Claim] | None = None
        self.full = False

    def issue(self, operation: int, caller: RunCaller, claim: Claim) -> None:
        if self.full:
            raise StoreError("no space left on the device")
        self.issued = (operation, caller, claim)

    def revoke(self) -> None:
        self.issued = None


class FakeCommitment:
    """The port `Commitment`."""

    def __init__(self, *names: str) -> None:
        self.names = tuple(sorted(names))
        self.until: HoldUntil = None
        self.full = False
        """Whether only reserved files can be written."""
        self.failing = False
        """Whether no file can be written, though it may be reserved."""
        self.failing_hold = False
        """The same for the hold alone."""
        self.reserved = Writes()
        self.takes = asyncio.Event()
        """Cleared: a disk that takes its time to write."""
        self.takes.set()

    async def reserve(self, writes: Writes) -> None:
        needed = writes.names is not None or writes.hold is not None
        if self.full and needed:
            raise StoreError("cannot write /var/lib/appliance/active: No space left on device")
        self.reserved = writes

    async def release(self) -> None:
        self.reserved = Writes()

    def committed(self) -> tuple[str, ...]:
        return self.names

    def hold_until(self) -> HoldUntil:
        return self.until

    async def commit(self, names: Iterable[str]) -> None:
        await self.takes.wait()
        sorted_names = tuple(sorted(names))
        if self.failing or (self.full and self.reserved.names != sorted_names):
            raise StoreError("cannot write /var/lib/appliance/active: No space left on device")
        self.names = sorted_names

    async def set_hold(self, until: HoldUntil) -> None:
        if until == self.until:
            return
        no_room = self.full and until is not None and self.reserved.hold != until
        if self.failing or self.failing_hold or no_room:
            raise StoreError("cannot write /var/lib/appliance/hold: No space left on device")
        self.until = until


class FakeStore:
    """The port `Store`."""

    def __init__(self) -> None:
        self.rows: dict[int, Operation] = {}
        self.ended: list[Finished] = []
        self.updates = 0
        """Count of replacements of a row while its operation ran."""
        self.mark_of: dict[str, Mark] = {}
        self.questions = 0
        """Count of requests for repairs."""
        self.readable = asyncio.Event()
        """Cleared: a disk that takes its time to say what was left open."""
        self.readable.set()

    async def begin(self, operation: Operation) -> Operation:
        begun = replace(operation, id=len(self.rows) + 1)
        self.rows[begun.id] = begun
        return begun

    def update(self, operation: Operation) -> None:
        self.updates += 1
        self.rows[operation.id] = operation

    async def finish(self, finished: Finished) -> None:
        self.rows[finished.operation.id] = finished.operation
        self.ended.append(finished)

    async def unfinished(self) -> Operation | None:
        await self.readable.wait()
        closed = {finished.operation.id for finished in self.ended}
        return next(
            (o for i, o in sorted(self.rows.items(), reverse=True) if i not in closed), None
        )

    async def last(self) -> Finished | None:
        return self.ended[-1] if self.ended else None

    async def finished(self, operation_id: int) -> Finished | None:
        return next((f for f in self.ended if f.operation.id == operation_id), None)

    async def newest(self, most: int) -> Sequence[Finished]:
        return sorted(self.ended, key=lambda f: f.operation.id, reverse=True)[:most]

    async def usual_ms(self, operation: Operation) -> float | None:
        like = (operation.kind, operation.target)
        times = sorted(
            f.total_ms
            for f in self.ended
            if (f.operation.kind, f.operation.target) == like
            and f.outcome is Outcome.DONE
            and bool({Phase.STOP, Phase.RELEASE} & {*f.phases_ms}) == operation.changes_units
        )
        return times[len(times) // 2] if times else None

    async def repairs(self, since_unix_s: float) -> Mapping[str, Sequence[float]]:
        self.questions += 1
        found: dict[str, list[float]] = {}
        for operation in self.rows.values():
            if operation.kind is Kind.REPAIR and operation.began_unix_s >= since_unix_s:
                for name in operation.target:
                    found.setdefault(name, []).append(operation.began_unix_s)
        return found

    async def marks(self) -> Mapping[str, Mark]:
        return dict(self.mark_of)

    async def set_mark(self, name: str, mark: Mark, *, by: str) -> None:  # noqa: ARG002
        self.mark_of[name] = mark


class FakePeaks:
    """The port `Peaks`; keeps nothing while it is `full`."""

    def __init__(self) -> None:
        self.kept: dict[str, ObservedPeak] = {}
        self.writes: list[str] = []
        self.full = False

    def peak(self, name: str) -> ObservedPeak | None:
        return self.kept.get(name)

    def peaks(self, names: Collection[str]) -> Mapping[str, ObservedPeak]:
        return {name: peak for name, peak in self.kept.items() if name in names}

    async def record(self, name: str, peak: ObservedPeak) -> bool:
        await asyncio.sleep(0)
        self.writes.append(name)
        if not self.full:
            self.kept[name] = peak
        return not self.full

    async def forget_all_but(self, names: Collection[str]) -> None:
        self.kept = {name: peak for name, peak in self.kept.items() if name in names}
