"""Terms of every alert rule: what it is judged by, how often or long, what ends it, and which marks count.

Looks are 10 s apart. A rule fires after `bad_looks` bad ones of the last `of_looks`, once it has been
bad for `bad_s` without a good look; it resolves after `good_looks` good ones in a row and `good_s`.
Rules of a detector that confirms its losses itself take one look each way. A look counts only with the
readings that the rule is judged by: each young enough, and made since the start, or the operation, that
it is to tell of; several bad looks are as many readings of the first of them (`watchdog.findings`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from appliance.alerts.watchdog_rules.snapshot import ReadingKind
from appliance.model.alerts import AlertRule, Severity
from appliance.model.words import Mark


class Since(StrEnum):
    """Moment since which a reading must have been made."""

    EVER = "ever"
    START = "start"
    """The start of the profile's engine: what an earlier process did is no fault of this one."""
    OPERATION = "operation"
    """The end of the last operation, which moves memory for seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedReading:
    """Reading that a rule is judged by."""

    reading: ReadingKind
    oldest_s: float
    """Age from which on it tells nothing."""
    since: Since = Since.EVER


class EndedBy(StrEnum):
    """Event that ends an alert at once; good looks end each besides."""

    STOP = "stop"
    """Stop of its profile, which should not serve."""
    BOOT = "boot"
    """Boot of the box, with which the process or the moment that it is about is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTerms:
    """Terms of one rule."""

    severity: Severity
    """Severity where the finding has none."""
    bad_looks: int = 1
    of_looks: int = 1
    bad_s: float = 0.0
    good_looks: int = 2
    good_s: float = 0.0
    judged_by: tuple[JudgedReading, ...]
    """Readings, as far as a look has them; of the first one each bad look needs a new one."""
    ends: frozenset[EndedBy] = frozenset()
    least_mark: Mark = Mark.LIVE
    """Mark from which on targets are told: LIVE, or STANDBY where the danger does not depend on who
    uses the model. GPUs and the box have no mark and count as live."""

    @property
    def kept_looks(self) -> int:
        """Return the number of looks that the state has to keep."""
        return max(self.of_looks, self.good_looks)


_MINUTES_S: Final = 60.0
_CRITICAL: Final = Severity.CRITICAL
_WARNING: Final = Severity.WARNING
_STOP: Final = frozenset({EndedBy.STOP})
_BOOT: Final = frozenset({EndedBy.BOOT})
_ENGINE: Final = _STOP | _BOOT
"""Endings of an alert about a process of a profile."""

_UNITS: Final = JudgedReading(reading=ReadingKind.UNITS, oldest_s=30.0)
_STATUS: Final = JudgedReading(reading=ReadingKind.STATUS, oldest_s=30.0)
_STATUS_OF_ENGINE: Final = JudgedReading(
    reading=ReadingKind.STATUS, oldest_s=30.0, since=Since.START
)
_ANSWER: Final = JudgedReading(reading=ReadingKind.ANSWER, oldest_s=60.0, since=Since.START)
_GPUS: Final = JudgedReading(reading=ReadingKind.GPUS, oldest_s=60.0)
_GPUS_OF_ENGINE: Final = JudgedReading(reading=ReadingKind.GPUS, oldest_s=60.0, since=Since.START)
_GPUS_AT_REST: Final = JudgedReading(reading=ReadingKind.GPUS, oldest_s=60.0, since=Since.OPERATION)
_LISTENERS: Final = JudgedReading(reading=ReadingKind.LISTENERS, oldest_s=45.0)
_FILES: Final = JudgedReading(reading=ReadingKind.FILES, oldest_s=60.0)
_PROBE: Final = JudgedReading(reading=ReadingKind.PROBE, oldest_s=inf, since=Since.START)
"""Probes are as old as their schedule lets them be, which has a rule of its own; so are canaries."""
_CANARIES: Final = JudgedReading(reading=ReadingKind.CANARIES, oldest_s=inf, since=Since.START)
_SCHEDULE: Final = JudgedReading(reading=ReadingKind.SCHEDULE, oldest_s=30.0)
_DISKS: Final = JudgedReading(reading=ReadingKind.DISKS, oldest_s=30.0)
_WATCH: Final = JudgedReading(reading=ReadingKind.WATCH, oldest_s=inf)
"""Each entry is asked at a pace of its own."""


def _three_of_five(*judged_by: JudgedReading, ends: frozenset[EndedBy] = frozenset()) -> AlertTerms:
    return AlertTerms(severity=_CRITICAL, bad_looks=3, of_looks=5, judged_by=judged_by, ends=ends)


def _detector(*judged_by: JudgedReading, ends: frozenset[EndedBy] = frozenset()) -> AlertTerms:
    return AlertTerms(severity=_WARNING, good_looks=1, judged_by=judged_by, ends=ends)


def _confirmed(*judged_by: JudgedReading, ends: frozenset[EndedBy] = frozenset()) -> AlertTerms:
    return AlertTerms(severity=_WARNING, bad_looks=2, of_looks=2, judged_by=judged_by, ends=ends)


def _ten_minutes(*judged_by: JudgedReading, ends: frozenset[EndedBy] = frozenset()) -> AlertTerms:
    return AlertTerms(
        severity=_WARNING,
        good_looks=1,
        bad_s=10 * _MINUTES_S,
        good_s=10 * _MINUTES_S,
        judged_by=judged_by,
        ends=ends,
    )


def _device(*, ends: frozenset[EndedBy] = frozenset()) -> AlertTerms:
    return AlertTerms(severity=_CRITICAL, good_looks=3, judged_by=(_GPUS,), ends=ends)


ALERT_TERMS: Final[Mapping[AlertRule, AlertTerms]] = {
    AlertRule.LIVE_DOWN: _three_of_five(_ANSWER, _UNITS, ends=_ENGINE),
    AlertRule.NO_PROGRESS: AlertTerms(
        severity=_CRITICAL,
        bad_looks=2,
        of_looks=3,
        # Not by the GPUs, which excuse alone: a box may have none, and a hung driver freezes engines.
        judged_by=(_UNITS, _STATUS_OF_ENGINE),
        ends=_ENGINE,
    ),
    AlertRule.CRASH_LOOP: AlertTerms(
        severity=_CRITICAL, good_s=15 * _MINUTES_S, judged_by=(_UNITS,), ends=_ENGINE
    ),
    AlertRule.CPU_FALLBACK: _confirmed(_GPUS_OF_ENGINE, ends=_ENGINE),
    AlertRule.SLOW: _detector(_PROBE, ends=_STOP),
    AlertRule.QUALITY: _detector(_CANARIES, ends=_STOP),
    AlertRule.NO_PROBE: _detector(_SCHEDULE, ends=_STOP),
    AlertRule.PATCH: _confirmed(_UNITS, ends=_ENGINE),
    AlertRule.DRIFT: _confirmed(_FILES),
    AlertRule.SWITCH_FAILED: AlertTerms(severity=_CRITICAL, good_looks=1, judged_by=(_STATUS,)),
    AlertRule.SWITCH_STUCK: AlertTerms(
        severity=_CRITICAL,
        good_looks=1,
        judged_by=(_STATUS,),
        ends=_BOOT,
        least_mark=Mark.STANDBY,
    ),
    AlertRule.EXPOSED: AlertTerms(
        severity=_CRITICAL, judged_by=(_LISTENERS,), ends=_ENGINE, least_mark=Mark.STANDBY
    ),
    AlertRule.FILTER_OFF: AlertTerms(
        severity=_WARNING,
        bad_looks=2,
        of_looks=2,
        judged_by=(_UNITS,),
        ends=_BOOT,
        least_mark=Mark.STANDBY,
    ),
    AlertRule.FOREIGN_HOLDER: AlertTerms(
        severity=_WARNING,
        good_looks=1,
        bad_s=_MINUTES_S,
        good_s=_MINUTES_S,
        judged_by=(_GPUS_AT_REST,),
        ends=_BOOT,
    ),
    AlertRule.UNATTRIBUTED: _ten_minutes(_GPUS_AT_REST, ends=_BOOT),
    AlertRule.GPU_LOST: _device(),
    AlertRule.GPU_ERROR: _device(ends=_BOOT),
    AlertRule.GPU_RECOVERY: _device(),
    AlertRule.ECC: AlertTerms(severity=_WARNING, good_looks=3, judged_by=(_GPUS,)),
    AlertRule.THROTTLE: _ten_minutes(_GPUS, ends=_BOOT),
    AlertRule.PCIE: _ten_minutes(_GPUS),
    AlertRule.DRIVER: AlertTerms(severity=_CRITICAL, bad_looks=2, of_looks=3, judged_by=(_GPUS,)),
    AlertRule.DISK: _ten_minutes(_DISKS),
    AlertRule.SUPERVISOR_DOWN: _three_of_five(_UNITS, ends=_BOOT),
    AlertRule.GATEWAY_DOWN: _three_of_five(_UNITS, ends=_BOOT),
    AlertRule.WATCH_DOWN: _three_of_five(_WATCH),
    AlertRule.TEST: _detector(_UNITS),
}
