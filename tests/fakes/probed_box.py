"""Box whose probes have the speed that a test wants, on the schedule that the detectors want."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from appliance.model.measurements import (
    Evidence,
    MeasurementEvent,
    Probe,
    ProbeKind,
    RawTimings,
    TimingSource,
)
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.probe_prompts import CODING_TASKS, PREFILL
from appliance.speed.profile_record import ProfileRecord
from tests.fakes.probe_rows import EVIDENCE

BEGIN_S = 1_740_000_000.0
DECODE_TOK_S = 80.0
PREFILL_TOK_S = 2000.0
_WIGGLE = (0.004, -0.003, 0.001, -0.005, 0.003)
_TASKS = tuple(CODING_TASKS)


def measured(
    prompt: str,
    at_s: float,
    *,
    speed: float = 1.0,
    tokens_per_step: float = 1.0,
    drafted: int | None = None,
    kind: ProbeKind = ProbeKind.SCHEDULED,
    evidence: Evidence = EVIDENCE,
) -> Probe:
    """Return a valid probe of 200 tokens at a share of the usual speed."""
    decode_s = 200 / (DECODE_TOK_S * speed * tokens_per_step)
    return Probe(
        profile="genesis",
        began_unix_s=at_s,
        began_s=at_s - BEGIN_S,
        boot_id="5b1c0a6e-7a52-4a0e-9be0-6f1f3f0e9d11",
        kind=kind,
        prompt=prompt,
        outcome=ProbeOutcome.VALID,
        raw=RawTimings(
            source=TimingSource.ENGINE,
            prompt_tokens=2000,
            cached_tokens=0,
            prefill_s=2000 / (PREFILL_TOK_S * speed),
            output_tokens=200,
            decoded_tokens=200,
            decode_s=decode_s,
            drafted_tokens=drafted,
            accepted_tokens=None if drafted is None else round(200 - 200 / tokens_per_step),
            ttft_s=0.4,
            wall_s=decode_s + 1.0,
        ),
        evidence=evidence,
    )


@dataclass
class ProbedBox:
    """Box that feeds a record with a probe of both series every 15 min, and those it wishes for."""

    record: ProfileRecord = field(default_factory=lambda: ProfileRecord.restored("genesis", {}))
    now_s: float = BEGIN_S
    speed: float = 1.0
    """Share of the usual speed."""
    evidence: Evidence = EVIDENCE
    tokens_per_step: float = 1.0
    drafted: int | None = None
    outcome: ProbeOutcome = ProbeOutcome.VALID
    speculative: bool = False
    pid: int = 100
    count: int = 0
    events: list[MeasurementEvent] = field(default_factory=list)

    @property
    def minute(self) -> float:
        return self.now_s / 60

    def start(self) -> None:
        """Start the backend, again with another process."""
        self.pid += 1
        self.record.start(self.minute, self.now_s, self.pid)

    def run(self, hours: float) -> Sequence[MeasurementEvent]:
        """Let time pass; return the events of it."""
        found: list[MeasurementEvent] = []
        end_s, slot_s = self.now_s + 3600 * hours, self.now_s
        while slot_s < end_s:
            wish = self.record.wish()
            if wish is not None and wish[0] * 60 < slot_s + 900:
                self.now_s = max(self.now_s, wish[0] * 60)
                found += self.probe(wish[1])
            else:
                slot_s += 900
                self.now_s = slot_s
                found += self.probe()
        self.events += found
        return found

    def probe(self, series: Series | None = None) -> Sequence[MeasurementEvent]:
        """Make one probe now, of one series or of both."""
        self.count += 1
        prompts = {Series.DECODE: _TASKS[self.count % len(_TASKS)], Series.PREFILL: PREFILL}
        found: list[MeasurementEvent] = []
        for one in (*Series,) if series is None else (series,):
            made = measured(
                prompts[one],
                self.now_s,
                speed=self.speed * math.exp(_WIGGLE[self.count % len(_WIGGLE)]),
                tokens_per_step=self.tokens_per_step,
                drafted=self.drafted,
                evidence=self.evidence,
            )
            if self.outcome is not ProbeOutcome.VALID:
                made = replace(made, outcome=self.outcome, raw=None)
            found += self.record.take(made, self.minute, speculative=self.speculative)
        return found

    @classmethod
    def healthy(cls, hours: float = 30, **values: object) -> "ProbedBox":
        """Return a box that has learned its first baseline and has been healthy since."""
        box = cls(**values)  # type: ignore[arg-type]
        box.start()
        box.run(hours)
        return box
