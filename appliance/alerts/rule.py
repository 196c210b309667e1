"""Form of an alert rule: one `Rule` holds all that is known of it, and its function judges each look.

A rule says `Sign.BAD` for what is wrong whoever gets a message about it: the mark of a subject decides only that
(`alerts.delivery`). It says `Sign.UNKNOWN` where a figure that it needs is missing.

Looks are 10 s apart. A rule fires after `bad_looks` bad ones of the last `of_looks`, once it has been
bad for `bad_s` without a good look; it resolves after `good_looks` good ones in a row and `good_s`.
Rules of a detector that confirms its losses itself take one look each way. A look counts only with the
readings that the rule is judged by: each young enough, and made since the start, or the operation, that
it is to tell of; several bad looks are as many readings of the first of them (`alerts.rules.findings`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from appliance.alerts.snapshot import BoxLook, ReadingKind
from appliance.alerts.watchdog_memory import WatchdogMemory
from appliance.model.alerts import AlertRule, Finding, Severity, Sign, Subject, SubjectKind
from appliance.model.wording import printable
from appliance.model.words import Mark

Judge = Callable[[BoxLook, WatchdogMemory], Iterable[Finding]]
"""Function that judges all subjects of a rule, with the memory after the look."""

_MOST_FACT: Final = 80
_MOST_LINE: Final = 160
_MOST_DETAILS: Final = 6


def profile_subject(name: str) -> Subject:
    return Subject(kind=SubjectKind.PROFILE, name=name)


def good(rule: AlertRule, subject: Subject) -> Finding:
    return Finding(subject=subject, rule=rule, sign=Sign.GOOD)


def ended(rule: AlertRule, subject: Subject, over: str) -> Finding:
    """Return a finding of what is gone, with the phrase about that."""
    return Finding(subject=subject, rule=rule, sign=Sign.GOOD, is_final=True, over=over)


def unknown(rule: AlertRule, subject: Subject) -> Finding:
    return Finding(subject=subject, rule=rule, sign=Sign.UNKNOWN)


def signed(rule: AlertRule, subject: Subject, *, is_good: bool | None) -> Finding:
    """Return a finding of a subject that is well; None: that is not known."""
    return good(rule, subject) if is_good else unknown(rule, subject)


def bad(
    rule: AlertRule,
    subject: Subject,
    fact: str,
    *,
    command: str = "",
    details: Iterable[str] = (),
    likely: str = "",
    since_unix_s: float | None = None,
    severity: Severity | None = None,
    is_proven: bool = False,
) -> Finding:
    """Return a finding of what is wrong; its texts are cut to what a phone shows.

    Without a command it has the one of its rule (`Rule.command`).
    """
    lines = [line for text in details if (line := _cut(text, _MOST_LINE))]
    return Finding(
        subject=subject,
        rule=rule,
        sign=Sign.BAD,
        fact=_cut(fact, _MOST_FACT),
        details=tuple(lines[:_MOST_DETAILS]),
        likely=_cut(likely, _MOST_LINE),
        command=_cut(command, _MOST_LINE),
        since_unix_s=since_unix_s,
        severity=severity,
        is_proven=is_proven,
    )


def _cut(text: str, most: int) -> str:
    """Return a text on one line of at most so many characters."""
    line = printable(text[: most + 1].strip())
    return line if len(line) <= most else f"{line[: most - 1]}…"


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
    """Age from which on it proves nothing."""
    since: Since = Since.EVER


class EndedBy(StrEnum):
    """Event that ends an alert at once; good looks end each besides."""

    STOP = "stop"
    """Stop of its profile, which should not serve."""
    BOOT = "boot"
    """Boot of the box, with which the process or the moment that it is about is gone."""


class OutsideCause(StrEnum):
    """Cause that explains alerts and is no alert itself."""

    OPERATION = "operation"
    INTERNET_DOWN = "internet-down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Alert rule: what it judges by, when it fires and is over, what explains it, and its words.

    Its runbook is the section of docs/runbooks.md that has its key as a title.
    """

    rule: AlertRule
    """Key of the rule."""
    subjects: tuple[SubjectKind, ...]
    """Kinds of its subjects."""
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
    """Mark from which on targets get messages: LIVE, or STANDBY where the danger does not depend on who
    uses the model. GPUs and the box have no mark and count as live."""
    inhibited_by: frozenset[AlertRule | OutsideCause] = frozenset()
    """Causes that explain its alerts; `alerts.inhibition` has how far each of them reaches."""
    over: str
    """Phrase after the subject's name once the fault is over: ``genesis serves again``."""
    command: str
    """Command for a finding that names none; ``NAME`` stands for the subject's name."""
    judge: Judge
    source: str
    """Origin of the figures that it judges."""

    @property
    def kept_looks(self) -> int:
        """Return the number of looks that the state has to keep."""
        return max(self.of_looks, self.good_looks)


CRITICAL: Final = Severity.CRITICAL
WARNING: Final = Severity.WARNING
OF_BOX: Final = (SubjectKind.BOX,)
OF_GPU: Final = (SubjectKind.GPU,)
OF_PROFILE: Final = (SubjectKind.PROFILE,)
MINUTES_S: Final = 60.0
STOP: Final = frozenset({EndedBy.STOP})
BOOT: Final = frozenset({EndedBy.BOOT})
STOP_OR_BOOT: Final = STOP | BOOT
"""Endings of an alert about a process of a profile."""
SUPERVISOR_DOWN: Final = frozenset({AlertRule.SUPERVISOR_DOWN})
"""Cause of the alerts whose facts only the supervisor reports."""
ENGINE_CAUSES: Final = frozenset(
    {AlertRule.DRIVER, AlertRule.GPU_LOST, AlertRule.CRASH_LOOP, AlertRule.LIVE_DOWN}
)
"""Causes of the alerts about what an engine does while it runs."""

UNITS: Final = JudgedReading(reading=ReadingKind.UNITS, oldest_s=30.0)
STATUS: Final = JudgedReading(reading=ReadingKind.STATUS, oldest_s=30.0)
STATUS_OF_ENGINE: Final = JudgedReading(
    reading=ReadingKind.STATUS, oldest_s=30.0, since=Since.START
)
ANSWER: Final = JudgedReading(reading=ReadingKind.ANSWER, oldest_s=60.0, since=Since.START)
GPUS: Final = JudgedReading(reading=ReadingKind.GPUS, oldest_s=60.0)
GPUS_OF_ENGINE: Final = JudgedReading(reading=ReadingKind.GPUS, oldest_s=60.0, since=Since.START)
GPUS_AT_REST: Final = JudgedReading(reading=ReadingKind.GPUS, oldest_s=60.0, since=Since.OPERATION)
LISTENERS: Final = JudgedReading(reading=ReadingKind.LISTENERS, oldest_s=45.0)
FILES: Final = JudgedReading(reading=ReadingKind.FILES, oldest_s=60.0)
PROBE: Final = JudgedReading(reading=ReadingKind.PROBE, oldest_s=inf, since=Since.START)
"""Probes are as old as their schedule lets them be, which has a rule of its own; so are canaries."""
CANARIES: Final = JudgedReading(reading=ReadingKind.CANARIES, oldest_s=inf, since=Since.START)
SCHEDULE: Final = JudgedReading(reading=ReadingKind.SCHEDULE, oldest_s=30.0)
DISKS: Final = JudgedReading(reading=ReadingKind.DISKS, oldest_s=30.0)
WATCH: Final = JudgedReading(reading=ReadingKind.WATCH, oldest_s=inf)
"""Each `[[watch]]` entry is checked at a pace of its own."""
