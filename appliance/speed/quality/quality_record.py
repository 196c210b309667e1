"""Record of a profile's quality: the state of each group of canaries, and its JSON of a few kB."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from appliance.model.json_reader import decode_json
from appliance.model.measurements import CanaryRun, EventKind, MeasurementEvent
from appliance.speed.quality.canary import Canary
from appliance.speed.quality.expectation import CanaryOutcome, CanaryVerdict
from appliance.speed.quality.pass_rate import HOUR_S, MOST_BASELINE, PassRate, QualityChange
from appliance.speed.quality.quality_message import accepted_text, lost_text, recovered_text
from appliance.wire.typed_json import from_json

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
    """Problems of the operator's canary file, as last told."""


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
    """Drop what is recorded of canaries that are no longer asked."""
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
