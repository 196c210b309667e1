"""The port `Units` on a fake systemd, in its virtual time."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from appliance.model.errors import UnitError
from appliance.model.names import unit_of
from appliance.model.observed import Observed
from appliance.system.ports import Change
from tests.fakes.systemd import RUN, FakeSystemd

_HOLD_LOOK_S = 1.0


@dataclass
class FakeChange:
    """Waiting is what makes time pass."""

    units: "FakeUnits"
    version: int

    async def wait(self, timeout_s: float) -> bool:
        await asyncio.sleep(0)
        if self.units.is_driven:
            return await self._until_driven(self.units.systemd.now_s + timeout_s)
        if self.units.version != self.version:
            return True
        self.units.idle_waits += 1
        if self.units.idle_waits > self.units.patience:
            await asyncio.get_running_loop().create_future()
        return self.units.systemd.advance(self.units.systemd.now_s + timeout_s)

    def has_happened(self) -> bool:
        return self.units.version != self.version

    async def _until_driven(self, due_s: float) -> bool:
        while self.units.version == self.version and self.units.systemd.now_s < due_s:
            await self.units.moved.wait()
        return self.units.version != self.version


class FakeUnits:
    """The port `Units`. After `patience` waits nothing happens any more."""

    def __init__(self, systemd: FakeSystemd) -> None:
        self.systemd = systemd
        self.version = 0
        self.idle_waits = 0
        self.patience = 10_000
        self.is_driven = False
        """Time passes only in `drive`, and not because somebody waits."""
        self.moved = asyncio.Event()
        self.deaf = False
        self.lost = False
        """No unit can be looked at."""
        self.used_s: dict[str, float] = {}
        """CPU time by profile."""
        self.starts: list[str] = []
        """Profiles that were started, in order."""
        self.seen: dict[object, Observed] = {}
        """Observations by task."""
        self.latest = Observed(units={})
        self.looks = 0
        self.is_quiet = False
        """Only `version` counts signals; else every question is answered by another number."""
        self.questions = 0
        self.asked: list[str] = []
        """Profiles whose engines were asked about their builds, in order."""
        self.mute = False
        """No engine can be asked."""
        self.on_ask: Callable[[str], object] = str
        self.rivals_at_start: list[tuple[str, str]] = []

    async def observe(self, names: Iterable[str], *, full: bool = False) -> Observed:
        await asyncio.sleep(0)
        if self.lost:
            raise UnitError("systemd does not answer")
        self.looks += 1
        self.latest = self.seen[asyncio.current_task()] = self.systemd.observed(names, full=full)
        return self.latest

    @property
    def boot_id(self) -> str:
        return f"boot-{self.systemd.boots}"

    @property
    def signals(self) -> int:
        if not self.is_quiet:
            self.questions += 1
        return self.version + self.questions

    def change(self) -> Change:
        return FakeChange(self, self.version)

    def drive(self, to_s: float) -> None:
        """Let time pass until then, or until something happens by itself."""
        if self.systemd.advance(to_s):
            self.version += 1
        self.moved.set()
        self.moved.clear()

    async def control_group(self, name: str) -> str:
        if self.deaf:
            raise UnitError("systemd does not answer")
        return f"/appliance.slice/{unit_of(name)}" if name in self.systemd.owners() else ""

    async def cpu_s(self, name: str) -> float | None:
        if self.deaf:
            raise UnitError("systemd does not answer")
        return self.used_s.get(name)

    async def start(self, name: str) -> None:
        self.starts.append(name)
        for rival in self.systemd.rivals[name]:
            if not self.seen.get(asyncio.current_task(), self.latest).unit(rival).idle:
                self.rivals_at_start.append((name, rival))
        self.systemd.reset_failed(name)
        self.systemd.start(name)
        self.version += 1

    async def stop(self, name: str) -> None:
        self.systemd.stop(name)
        self.version += 1

    async def ask_build(self, name: str) -> None:
        await asyncio.sleep(0)
        self.asked.append(name)
        if self.mute:
            raise UnitError("the job ended with 'timeout'")
        self.on_ask(name)

    async def start_run(self) -> None:
        self.systemd.start(RUN)
        self.version += 1

    async def stop_run(self) -> None:
        self.systemd.stop(RUN)
        self.version += 1

    async def start_hold(self) -> None:
        self.systemd.start_hold()
        self.version += 1
        await self.hold_started()

    async def hold_started(self) -> None:
        """Wait until the start job of the hold has ended."""
        while self.systemd.hold_queued:
            await self.change().wait(_HOLD_LOOK_S)
        if not self.systemd.hold_active:
            raise UnitError("the start of the hold ended with 'canceled'")

    async def stop_hold(self) -> None:
        self.systemd.stop_hold()
        self.version += 1
