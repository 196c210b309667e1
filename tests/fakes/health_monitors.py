"""Typed in-memory monitors of the health agent, and a store that has no file."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from appliance.health.box_view import ProfileView
from appliance.model.errors import BusyError
from appliance.model.measurements import (
    TrafficSums,
)
from appliance.model.speeds import BaselineReport, SeriesBaseline, SeriesSpeed, SpeedReport
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.probe_schedule import ProbeConditions
from appliance.speed.probe_sizes import ProbeStep
from appliance.wire.health_socket import ProbeProgressEvent

RATE = 27.0


class FakeProfileWatch:
    """The protocol `ProfileWatch`."""

    def __init__(self) -> None:
        self.seen: list[tuple[ProfileView, ProbeConditions]] = []
        self.state = "made"
        self.fault: Exception | None = None
        """Error that ends it at its next look; None: none."""
        self.news = asyncio.Event()

    def observe(self, view: ProfileView, conditions: ProbeConditions) -> None:
        self.seen.append((view, conditions))
        self.news.set()

    async def run(self) -> None:
        self.state = "running"
        try:
            while self.fault is None:
                await self.news.wait()
                self.news.clear()
            raise self.fault
        except asyncio.CancelledError:
            self.state = "cancelled"
            raise


class FakeSpeedWatch(FakeProfileWatch):
    """The protocol `SpeedWatch`: a probe takes no time and measures `RATE`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.traffic: list[TrafficSums] = []
        self.trouble = ""
        self.phase = "healthy"
        self.outcome = ProbeOutcome.VALID
        self.last_probe_unix_s: float | None = None
        self.changes: list[tuple[str, str]] = []
        """Changes of the baseline, each with who made it."""
        self.refusal: BusyError | None = None

    def add_traffic(self, sums: TrafficSums) -> None:
        self.traffic.append(sums)

    def report(self) -> SpeedReport:
        probed = self.last_probe_unix_s is not None
        decode = SeriesSpeed(series=Series.DECODE, phase=self.phase, rate=RATE, tokens_per_step=2.0)
        return SpeedReport(
            profile=self.name,
            series=(decode,) if probed else (),
            last_probe_unix_s=self.last_probe_unix_s,
            last_outcome=self.outcome if probed else None,
            trouble=self.trouble,
        )

    def baseline(self) -> BaselineReport:
        series = SeriesBaseline(series=Series.DECODE, phase="healthy", baseline=RATE)
        return BaselineReport(profile=self.name, series=(series,))

    async def accept(self, by: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.changes.append(("accept", by))

    async def reset(self, by: str) -> None:
        self.changes.append(("reset", by))

    async def probe_now(self) -> AsyncIterator[ProbeProgressEvent]:
        for state, rate in ((ProbeStep.READING, None), (ProbeStep.ENDED, RATE)):
            yield ProbeProgressEvent(
                profile=self.name, prompt="refactor", state=state, text="", tok_s=rate
            )
        self.last_probe_unix_s = 1_760_000_000.0


class FakeQualityWatch(FakeProfileWatch):
    """The protocol `QualityWatch`."""

    def __init__(self) -> None:
        super().__init__()
        self.pass_rate: float | None = None
        self.last_round_unix_s: float | None = None
        self.is_lost = False
        self.trouble = ""
        self.changes: list[str] = []

    async def accept(self, by: str) -> None:
        self.changes.append(f"accept by {by}")

    async def reset(self) -> None:
        self.changes.append("reset")


@dataclass
class FakeCompactingStore:
    """The protocol `CompactingStore`."""

    trouble: str | None = None
    steps: list[bool] = field(default_factory=list)
    """Results of the next steps; empty: nothing is to be done."""
    compacted: list[float] = field(default_factory=list)

    async def compact(self, now_unix_s: float) -> bool:
        self.compacted.append(now_unix_s)
        await asyncio.sleep(0)
        return self.steps.pop(0) if self.steps else False
