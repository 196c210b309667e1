"""Prober of an engine whose speed a test sets, in virtual time, and a store in memory."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from appliance.health.clock import HealthClock
from appliance.model.measurements import (
    Evidence,
    MeasurementEvent,
    Probe,
    TrafficSums,
)
from appliance.model.profile import Applied
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.probe_prompts import PREFILL_TOKENS, in_one_piece, series_of
from appliance.speed.probe_sizes import ProbeCourse, ProbeStep
from appliance.wire.health_socket import ProbeProgressEvent
from tests.fakes.probe_rows import EVIDENCE
from tests.fakes.probed_box import DECODE_TOK_S, PREFILL_TOK_S, measured

_WIGGLE = (0.004, -0.003, 0.001, -0.005, 0.003)


@dataclass
class FakeCourseProber:
    """The protocol `CourseProber`: an engine that takes as long as its speed wants."""

    clock: HealthClock
    speed: float = 1.0
    """Share of the usual speed."""
    outcome: ProbeOutcome = ProbeOutcome.VALID
    outcomes: list[ProbeOutcome] = field(default_factory=list)
    """Outcomes of the next probes, before `outcome`."""
    evidence: Evidence = EVIDENCE
    drafted: int | None = None
    pieces: int | None = None
    refused: str = ""
    """Prompt that the engine fails at."""
    turn_s: float = 0.0
    """Time until the lane's turn comes."""
    courses: list[ProbeCourse] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """Beginning of each probe, monotonic."""

    def piece_tokens(self, applied: Applied) -> int | None:
        assert applied.name == "genesis"
        return self.pieces

    async def probe(
        self,
        applied: Applied,
        course: ProbeCourse,
        *,
        on_progress: Callable[[ProbeProgressEvent], None],
    ) -> Sequence[Probe]:
        self.courses.append(course)
        self.times.append(self.clock.monotonic_s())
        await asyncio.sleep(self.turn_s)
        outcome = self.outcomes.pop(0) if self.outcomes else self.outcome
        probes = []
        for prompt in course.prompts:
            began_unix_s, began_s = self.clock.unix_s(), self.clock.monotonic_s()
            wiggle = math.exp(_WIGGLE[len(self.times) % len(_WIGGLE)])
            await asyncio.sleep(_seconds(prompt, course) / self.speed)
            probe = replace(
                measured(
                    prompt,
                    began_unix_s,
                    speed=self.speed * wiggle,
                    drafted=self.drafted,
                    kind=course.kind,
                    evidence=self.evidence,
                ),
                profile=applied.name,
                began_s=began_s,
            )
            failed = ProbeOutcome.FAILED if prompt == self.refused else outcome
            if failed is not ProbeOutcome.VALID:
                probe = replace(probe, outcome=failed, raw=None, detail=f"it {failed}")
            probes.append(probe)
            on_progress(
                ProbeProgressEvent(
                    profile=applied.name, prompt=prompt, state=ProbeStep.ENDED, text=probe.detail
                )
            )
        return probes


def _seconds(prompt: str, course: ProbeCourse) -> float:
    """Return the time that a prompt takes at the usual speed."""
    if series_of(prompt) is Series.DECODE:
        return course.output_tokens / DECODE_TOK_S
    _, _, tokens = in_one_piece(prompt).partition("-")
    return int(tokens or PREFILL_TOKENS) / PREFILL_TOK_S


@dataclass
class FakeProbeStore:
    """The protocol `ProbeStore`."""

    probes: list[Probe] = field(default_factory=list)
    events: list[MeasurementEvent] = field(default_factory=list)
    saved: dict[str, str] = field(default_factory=dict)
    traffic: list[TrafficSums] = field(default_factory=list)
    full: bool = False
    """Whether the disk is full: probes are dropped, states and events wait in memory."""

    async def add(
        self,
        *,
        probe: Probe | None = None,
        states: Mapping[tuple[str, str], str] | None = None,
        events: Sequence[MeasurementEvent] = (),
    ) -> Sequence[MeasurementEvent]:
        await asyncio.sleep(0)
        if probe is not None and not self.full:
            self.probes.append(probe)
        self.saved.update({key: text for (_, key), text in (states or {}).items()})
        self.events += events
        return events

    async def add_traffic(self, profile: str, sums: TrafficSums) -> None:
        assert profile == "genesis"
        self.traffic.append(sums)
