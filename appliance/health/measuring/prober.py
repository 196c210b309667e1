"""Prober: asks a profile the prompts of a probe through the gateway's lane, and measures them.

Whatever engine, gateway or box do is an outcome of the probe:

=============================================  ============================
lane admits nothing, at the first request      busy; the probe ends
lane admits nothing, between two requests      yielded; the probe ends
a request of a client arrives                  yielded; the probe ends
box was suspended, or its clock set            clock; the probe ends
other programs make the engine's steps long    crowded; the probe ends
status is not 200, or the response breaks off  failed
response exceeds its time or size              too-long
=============================================  ============================

What the prober learns of an engine holds until its next start (`EngineNotes`).
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.health.clock import HealthClock
from appliance.health.measuring.evidence import EvidenceReader
from appliance.health.measuring.lane_requests import LaneRequests
from appliance.health.measuring.prompt_exchange import (
    EngineContact,
    EngineNotes,
    PromptExchange,
    find_piece_size,
)
from appliance.model.measurements import (
    Probe,
    ProbeKind,
    RawTimings,
    decode_tok_s,
    prefill_tok_s,
)
from appliance.model.profile import Applied
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.measurement import Measurement, clock_moved
from appliance.speed.probe_prompts import in_one_piece, series_of
from appliance.speed.probe_sizes import ProbeCourse, ProbeStep
from appliance.system.ports import ProbeLane
from appliance.system.python_packages import package_version
from appliance.wire.health_socket import ProbeProgressEvent

OnProgress = Callable[[ProbeProgressEvent], None]

_SALT_BYTES: Final = 4
"""Enough for no two prompts in a cache to begin alike; a digit takes up to a token."""
_LAST: Final = frozenset(
    {ProbeOutcome.BUSY, ProbeOutcome.YIELDED, ProbeOutcome.CLOCK, ProbeOutcome.CROWDED}
)
"""Outcomes after which no further prompt is asked."""


class Prober:
    """Prober of all profiles.

    Args:
        lane: Lane of the gateway.
        evidence: Reader of the evidence.
        clock: Of the health agent.
        turn: Taken for each probe whole, so that no canary comes between two of its requests.
        salt: Returns letters and digits that no other prompt has.
        module_version: Returns the version of a module's package.
    """

    def __init__(
        self,
        lane: ProbeLane,
        evidence: EvidenceReader,
        clock: HealthClock,
        *,
        turn: asyncio.Lock | None = None,
        salt: Callable[[], str] = lambda: secrets.token_hex(_SALT_BYTES),
        module_version: Callable[[str], str | None] = package_version,
    ) -> None:
        self._lane = lane
        self._evidence = evidence
        self._clock = clock
        self._turn = turn or asyncio.Lock()
        self._salt = salt
        self._module_version = module_version
        self._notes: dict[str, EngineNotes] = {}

    def piece_tokens(self, applied: Applied) -> int | None:
        """Return the size of pieces for a new baseline of the long prompt; None: one request.

        Known after the warm-ups; the smallest size before.
        """
        notes = self._notes.get(applied.name) or EngineNotes.of(applied, None)
        return notes.size.tokens if notes.in_pieces else None

    async def probe(
        self,
        applied: Applied,
        course: ProbeCourse,
        *,
        on_progress: OnProgress = lambda _progress: None,
    ) -> Sequence[Probe]:
        """Ask the prompts of a course; returns a probe for each that was begun, at least one."""
        async with self._turn:
            return await self._probe(applied, course, on_progress)

    async def _probe(
        self, applied: Applied, course: ProbeCourse, on_progress: OnProgress
    ) -> Sequence[Probe]:
        notes = self._notes_of(applied, course)
        requests = LaneRequests(self._lane, applied.name)
        engine = EngineContact(
            applied=applied,
            requests=requests,
            notes=notes,
            clock=self._clock,
            room=self._evidence.room(applied),
        )
        await notes.read_version(requests, self._module_version)
        probes: list[Probe] = []
        for prompt in course.prompts:
            name = prompt if notes.in_pieces else in_one_piece(prompt)
            probe = await self._ask(engine, course, name, on_progress)
            probes.append(probe)
            if probe.outcome in _LAST:
                return probes
        if course.kind is ProbeKind.WARM_UP:
            await find_piece_size(engine, self._salt())
        return probes

    def _notes_of(self, applied: Applied, course: ProbeCourse) -> EngineNotes:
        notes = self._notes.get(applied.name)
        if notes is None or not notes.hold_for(applied, course.started_unix_s):
            notes = self._notes[applied.name] = EngineNotes.of(applied, course.started_unix_s)
        return notes

    async def _ask(
        self, engine: EngineContact, course: ProbeCourse, name: str, on_progress: OnProgress
    ) -> Probe:
        applied = engine.applied

        def tell(step: ProbeStep, text: str, tok_s: float | None = None) -> None:
            on_progress(
                ProbeProgressEvent(
                    profile=applied.name, prompt=name, state=step, text=text, tok_s=tok_s
                )
            )

        tell(ProbeStep.READING, "the prompt is read")
        recording = await self._evidence.begin(applied)
        began = _Instant.of(self._clock)
        exchange = PromptExchange(engine, course, name, salt=self._salt(), tell=tell)
        measured = began.judged(await exchange.measure(recording), _Instant.of(self._clock))
        evidence = await recording.end(
            engine_version=engine.notes.version, with_energy=series_of(name) is Series.DECODE
        )
        tell(ProbeStep.ENDED, measured.detail or measured.outcome, _tok_s(name, measured.raw))
        return Probe(
            profile=applied.name,
            began_unix_s=began.unix_s,
            began_s=began.monotonic_s,
            boot_id=self._clock.boot_id,
            kind=course.kind,
            prompt=name,
            outcome=measured.outcome,
            detail=measured.detail,
            raw=measured.raw,
            evidence=evidence,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instant:
    """Instant by three clocks."""

    unix_s: float
    monotonic_s: float
    boot_s: float

    @classmethod
    def of(cls, clock: HealthClock) -> "_Instant":
        return cls(unix_s=clock.unix_s(), monotonic_s=clock.monotonic_s(), boot_s=clock.boot_s())

    def judged(self, measured: Measurement, now: "_Instant") -> Measurement:
        """Return a measurement since this instant; no other outcome counts if a clock moved."""
        if not clock_moved(
            monotonic_s=now.monotonic_s - self.monotonic_s,
            wall_s=now.unix_s - self.unix_s,
            boot_s=now.boot_s - self.boot_s,
        ):
            return measured
        text = "the box was suspended, or its clock set"
        return replace(measured, outcome=ProbeOutcome.CLOCK, detail=text)


def _tok_s(name: str, raw: RawTimings | None) -> float | None:
    if raw is None:
        return None
    return decode_tok_s(raw) if series_of(name) is Series.DECODE else prefill_tok_s(raw)
