"""Record of a profile's quality: the pass rate of each group of canaries, its JSON of a few kB, and its report.

A lost pass rate is detected by a CUSUM of faults, bounded in each hour, with recovery:

- A group of canaries begins with the promise that they pass: a share of `PROMISED` faults is
  healthy. Accepting another level makes that the baseline.
- Each fault adds to a score, each pass takes from it: the logarithm of how much likelier the run is
  at a level that is worse by `WORSE` than at the baseline (Page 1954).
- At `LIMIT` the group is lost. In one hour the score grows by `HOUR_MOST` at most, so that a bad
  moment, however many answers it breaks, is no loss: faults must come in three hours.
- A lost group recovers by a score of its own, in the other direction.
- While either score is up, further rounds are wanted (`PassRate.wants_more`).

=========  =============================================  ==========
State      Run                                            Next state
=========  =============================================  ==========
healthy    fault, score at the limit                      lost
lost       pass, recovery at its limit                    healthy
=========  =============================================  ==========

The sentences for events have neither the profile's name before them nor clock times, as those of
other events.
"""

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Final

from appliance.model.json_reader import decode_json
from appliance.model.measurements import CanaryRun, EventKind, MeasurementEvent
from appliance.model.profile import Applied
from appliance.model.trap_names import TrapName
from appliance.speed.canaries import (
    OWN,
    REQUIRED_TOOL,
    SCHEMA_GROUP,
    TOOLS_GROUP,
    TOOLS_PREFIX,
    Canary,
)
from appliance.speed.canary_verdict import CanaryOutcome, CanaryVerdict
from appliance.wire.typed_json import from_json

PROMISED: Final = 0.02
"""Share of faults that is healthy: engines lose one or two answers in a hundred to sampling."""
WORSE: Final = 0.28
"""Difference of level that the scores are made for; from 12 % of faults on a score grows."""
WORST: Final = 0.9
LIMIT: Final = 20.0
"""Simulated (`make bench-canaries`): no event in 10 years of 2 % faults, 38 % found in a day."""
RECOVERED: Final = 16.0
"""48 passes in a row, which a level of 20 % of faults has once in 45,000 runs."""
HOUR_S: Final = 3600.0
HOUR_MOST: Final = 8.0
"""Growth of a score in an hour: three faults. Simulated with a bad hour each month and 2 % of faults
else: no event, and one in ten years of a profile without this bound, with a dwell of two hours."""
_KEPT_RUNS: Final = 96
MOST_BASELINE: Final = 0.6
_MORE_FROM: Final = 1.3
"""Score from which further rounds are wanted: one fault, until four runs after it have passed."""
_ACCEPTED_RUNS: Final = 48
_FEWEST_ACCEPTED: Final = 6


class QualityChange(StrEnum):
    LOST = "lost"
    RECOVERED = "recovered"


@dataclass(slots=True, kw_only=True)
class PassRate:
    """State of one group of canaries."""

    group: str
    baseline: float = PROMISED
    """Share of faults that is accepted."""
    score: float = 0.0
    since_unix_s: float | None = None
    """Oldest fault that counts in the score; None: it is 0."""
    hour_unix_s: float = 0.0
    """Beginning of the hour with the last fault, which is the first fault in it."""
    hour_score: float = 0.0
    """Score at that time."""
    lost_unix_s: float | None = None
    """Time since which the group is lost: its first fault then; None: it is healthy."""
    recovery: float = 0.0
    runs: str = ""
    """Last runs, oldest first: 1 for a pass, 0 for a fault."""
    proven: tuple[str, ...] = ()
    """Canaries of the group that have passed once."""
    fault: str = ""
    """Last fault, as a phrase."""

    @property
    def pass_share(self) -> float | None:
        """Share of the last runs that passed; None: none has been judged."""
        return self.runs.count("1") / len(self.runs) if self.runs else None

    @property
    def wants_more(self) -> bool:
        return (self.recovery if self.lost_unix_s is not None else self.score) >= _MORE_FROM

    def step(
        self, unix_s: float, *, passed: bool, fault: str = "", hour_s: float = HOUR_S
    ) -> QualityChange | None:
        """Count a run; returns the change of state that follows from it, if any.

        Args:
            unix_s: Time of the run.
            passed: Whether it passed.
            fault: Phrase about a run that did not.
            hour_s: Length of an hour, which is shorter in a trial.
        """
        self.runs = (self.runs + ("1" if passed else "0"))[-_KEPT_RUNS:]
        if not passed:
            self.fault = fault
        if self.lost_unix_s is not None:
            return self._await_recovery(passed=passed)
        if passed:
            self.score = max(0.0, self.score + _pass_step(self.baseline))
            if not self.score:
                self.since_unix_s = None
            return None
        if not 0 <= unix_s - self.hour_unix_s < hour_s:
            self.hour_unix_s, self.hour_score = unix_s, self.score
        most = min(LIMIT, self.hour_score + HOUR_MOST)
        self.score = max(self.score, min(most, self.score + _fault_step(self.baseline)))
        since = unix_s if self.since_unix_s is None else self.since_unix_s
        self.since_unix_s = since
        if self.score < LIMIT:
            return None
        self.score, self.since_unix_s, self.recovery, self.lost_unix_s = 0.0, None, 0.0, since
        return QualityChange.LOST

    def _await_recovery(self, *, passed: bool) -> QualityChange | None:
        step = _pass_step(self.baseline) if passed else _fault_step(self.baseline)
        self.recovery = max(0.0, self.recovery - step)
        if self.recovery < RECOVERED:
            return None
        self.lost_unix_s, self.recovery = None, 0.0
        return QualityChange.RECOVERED

    def accept(self) -> float | None:
        """Make the present share of faults the baseline; returns it, None: too few runs, or no change."""
        runs = self.runs[-_ACCEPTED_RUNS:]
        if len(runs) < _FEWEST_ACCEPTED:
            return None
        faults = min(MOST_BASELINE, max(PROMISED, runs.count("0") / len(runs)))
        if self.lost_unix_s is None and faults == self.baseline:
            return None
        self.baseline, self.score, self.recovery = faults, 0.0, 0.0
        self.since_unix_s = self.lost_unix_s = None
        return faults


def _fault_step(baseline: float) -> float:
    return math.log(_worse(baseline) / baseline)


def _pass_step(baseline: float) -> float:
    return math.log((1 - _worse(baseline)) / (1 - baseline))


def _worse(baseline: float) -> float:
    return min(WORST, baseline + WORSE)


_SUBJECTS: Final = {
    SCHEMA_GROUP: "answers by a JSON schema",
    TOOLS_GROUP: "tool calls",
}
_PARSER: Final = "--reasoning-parser"
_RECENT: Final = 24
"""Runs of which a message says how many failed: those that made the loss, rather than a week."""


def group_subject(group: str) -> str:
    """Return what a group's canaries ask for, in the plural."""
    return _SUBJECTS.get(group) or f"answers to canary {group.removeprefix(OWN)}"


def canary_subject(name: str) -> str:
    """Return the name of a canary as people know it."""
    return name.removeprefix(OWN)


def fault_hint(applied: Applied, canary: Canary) -> str:
    """Return what of a profile a fault of a canary comes from, as an end of its phrase; empty: not known."""
    holds = canary.group == SCHEMA_GROUP or canary.name.startswith(REQUIRED_TOOL)
    parses_nothing = _PARSER in applied.command and applied.abilities.reasoning is False
    return f" (trap {TrapName.PARSER_WITHOUT_THINKING})" if holds and parses_nothing else ""


def refused_text(profile: str, directory: str, problem: str) -> str:
    """Return the sentence about a canary file that is not understood."""
    return f"{directory}/{profile}.jsonl: {problem}"


def lost_text(profile: str, state: PassRate) -> str:
    """Return the sentence about a loss."""
    runs = state.runs[-_RECENT:]
    return (
        f"{runs.count('0')} of the last {len(runs)} {group_subject(state.group)} failed"
        f" ({state.fault}); do: appliance logs {profile}"
    )


def recovered_text(group: str, lasted_s: float) -> str:
    """Return the sentence about a recovery."""
    hours = max(1, round(lasted_s / 3600))
    return f"{group_subject(group)} pass again, after {hours} h"


def accepted_text(group: str, faults: float, by: str) -> str:
    """Return the sentence about a level that was accepted."""
    share = f"{100 * (1 - faults):.0f} %"
    return f"{share} of {group_subject(group)} pass: accepted by {by} as the baseline"


VERSION: Final = 1


@dataclass(slots=True, kw_only=True)
class QualityRecord:
    """Record of one profile."""

    rounds: int = 0
    """Rounds of canaries so far, by which their subject changes."""
    groups: dict[str, PassRate] = field(default_factory=dict)
    unproven: dict[str, str] = field(default_factory=dict)
    """Faults of canaries that have never passed and are not counted, by their names."""
    file_problems: tuple[str, ...] = ()
    """Problems of the operator's canary file, as last reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRun:
    """Consequences of a canary's verdict."""

    run: CanaryRun | None = None
    """Run to be stored; None: the verdict does not count."""
    event: MeasurementEvent | None = None


def count_verdict(
    record: QualityRecord,
    profile: str,
    canary: Canary,
    verdict: CanaryVerdict,
    unix_s: float,
    *,
    hour_s: float = HOUR_S,
) -> CountedRun:
    """Count a verdict in the record, and return what follows from it."""
    if verdict.outcome is CanaryOutcome.NONE:
        return CountedRun()
    group = record.groups.setdefault(canary.group, PassRate(group=canary.group))
    passed = verdict.outcome is CanaryOutcome.PASSED
    if passed and canary.name not in group.proven:
        group.proven = (*group.proven, canary.name)
    if verdict.outcome is CanaryOutcome.UNMET and canary.name not in group.proven:
        record.unproven[canary.name] = verdict.fault
        return CountedRun()
    record.unproven.pop(canary.name, None)
    run = CanaryRun(
        profile=profile, canary=canary.name, unix_s=unix_s, passed=passed, detail=verdict.fault
    )
    lost_s = group.lost_unix_s
    change = group.step(unix_s, passed=passed, fault=verdict.fault, hour_s=hour_s)
    if change is None:
        return CountedRun(run=run)
    is_lost = change is QualityChange.LOST
    event = MeasurementEvent(
        unix_s=unix_s,
        profile=profile,
        kind=EventKind.QUALITY_LOST if is_lost else EventKind.QUALITY_RECOVERED,
        since_unix_s=group.lost_unix_s if is_lost else lost_s,
        change=(group.pass_share or 0.0) - (1 - group.baseline) if is_lost else None,
        text=lost_text(profile, group)
        if is_lost
        else recovered_text(canary.group, unix_s - (lost_s or unix_s)),
    )
    return CountedRun(run=run, event=event)


def accept_quality(
    record: QualityRecord, profile: str, unix_s: float, by: str
) -> Sequence[MeasurementEvent]:
    """Make the present pass rates the baseline; returns an event for each group that changes."""
    events = []
    for name, group in record.groups.items():
        faults = group.accept()
        if faults is not None:
            text = accepted_text(name, faults, by)
            events.append(
                MeasurementEvent(unix_s=unix_s, profile=profile, kind=EventKind.ACCEPTED, text=text)
            )
    return events


def forget_others(record: QualityRecord, canaries: Collection[Canary]) -> None:
    """Drop what is recorded of canaries that are no longer sent."""
    groups = {canary.group for canary in canaries}
    names = {canary.name for canary in canaries}
    record.groups = {name: state for name, state in record.groups.items() if name in groups}
    record.unproven = {name: fault for name, fault in record.unproven.items() if name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unproven:
    name: str
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """JSON of a record."""

    version: int
    rounds: int
    groups: tuple[PassRate, ...]
    unproven: tuple[_Unproven, ...]
    file_problems: tuple[str, ...]


def wants_more(record: QualityRecord) -> bool:
    """Tell whether a group of canaries wants further rounds."""
    return any(group.wants_more for group in record.groups.values())


def begin_round(
    record: QualityRecord, canaries: Sequence[Canary], *, further: bool
) -> Sequence[Canary]:
    """Return the canaries of a new round: all, or in a further one those that had faults."""
    record.rounds += 1
    forget_others(record, canaries)
    wanted = {name for name, group in record.groups.items() if group.wants_more}
    chosen = [canary for canary in canaries if canary.group in wanted]
    return chosen if further and chosen else canaries


def encode_quality(record: QualityRecord) -> str:
    """Return the record as JSON."""
    stored = _Stored(
        version=VERSION,
        rounds=record.rounds,
        groups=tuple(record.groups.values()),
        unproven=tuple(_Unproven(name=name, fault=f) for name, f in record.unproven.items()),
        file_problems=record.file_problems,
    )
    return json.dumps(asdict(stored), separators=(",", ":"))


def decode_quality(text: str) -> QualityRecord:
    """Return the record of its JSON.

    Raises:
        ValueError: The text is no record, or one of another version.
    """
    stored = from_json(_Stored, decode_json(text))
    if stored.version != VERSION:
        raise ValueError(f"quality record: not of version {VERSION}")
    for group in stored.groups:
        if not 0 < group.baseline <= MOST_BASELINE or not set(group.runs) <= {"0", "1"}:
            raise ValueError(f"quality record: {group.group[:40]!r} has values that none can have")
    return QualityRecord(
        rounds=stored.rounds,
        groups={group.group: group for group in stored.groups},
        unproven={each.name: each.fault for each in stored.unproven},
        file_problems=stored.file_problems,
    )


_MOST_UNPROVEN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQuality:
    """Quality of one group of canaries."""

    group: str
    subject: str
    """Name of what is asked for, for people."""
    runs: int
    """Number of the last runs, of which the next tells."""
    pass_rate: float | None
    """Share of the last runs that passed; None: none has been judged."""
    baseline: float
    """Share that is accepted."""
    lost_unix_s: float | None
    """Time since which the group is lost; None: it is not."""
    fault: str
    """Last fault, as a phrase; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReport:
    """Quality of one profile."""

    profile: str
    groups: tuple[GroupQuality, ...] = ()
    pass_rate: float | None = None
    """Share of the last runs of all groups that passed; None: none has been judged."""
    last_round_unix_s: float | None = None
    """Time of the last round with an answer; None: none since the agent's start."""
    trouble: str = ""
    """Sentences about what keeps canaries from being sent or judged; empty: nothing."""


def quality_report(
    profile: str, record: QualityRecord, *, last_round_unix_s: float | None, unanswered: str
) -> QualityReport:
    """Return the report of a record.

    Args:
        profile: Its name.
        record: Its record.
        last_round_unix_s: Time of the last round; None: none.
        unanswered: Reason why canaries have had no answer for long; empty: they have.
    """
    groups = tuple(
        GroupQuality(
            group=name,
            subject=group_subject(name),
            runs=len(state.runs),
            pass_rate=state.pass_share,
            baseline=1 - state.baseline,
            lost_unix_s=state.lost_unix_s,
            fault=state.fault,
        )
        for name, state in sorted(record.groups.items())
        if state.runs
    )
    runs = "".join(state.runs for state in record.groups.values())
    return QualityReport(
        profile=profile,
        groups=groups,
        pass_rate=runs.count("1") / len(runs) if runs else None,
        last_round_unix_s=last_round_unix_s,
        trouble=quality_trouble(record, unanswered),
    )


def quality_trouble(record: QualityRecord, unanswered: str) -> str:
    """Return sentences about what keeps canaries from being sent or judged; empty: nothing.

    Args:
        record: Record of the profile.
        unanswered: Reason why canaries have had no answer for long; empty: they have.
    """
    found = [f"canaries get no answer: {unanswered}"] if unanswered else []
    found += [f"canary file: {problem}" for problem in record.file_problems[:1]]
    unproven = sorted(record.unproven.items())
    found += [
        f"canary {canary_subject(name)} has never passed: {fault}{_hint(name)}"
        for name, fault in unproven[:_MOST_UNPROVEN]
    ]
    if len(unproven) > _MOST_UNPROVEN:
        found.append(f"{len(unproven) - _MOST_UNPROVEN} more have never passed")
    return "; ".join(found)


def _hint(name: str) -> str:
    """Return what the owner of a profile can do about a canary that has never passed."""
    if not name.startswith(TOOLS_PREFIX):
        return ""
    return " (tools = false in the profile, if it promises none)"
