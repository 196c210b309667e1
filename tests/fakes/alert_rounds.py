"""Alert book with a clock that the test turns: looks every 10 s, actions, and all that came of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from appliance.alerts.book import AlertBook, AlertPolicy, AlertState, Evaluation, Instant
from appliance.alerts.evaluation import evaluate
from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.round import STANDARD_TABLES, AlertTables
from appliance.model.alerts import (
    AlertRule,
    Finding,
    Notice,
    Severity,
    Sign,
    Subject,
    SubjectKind,
    Transition,
    TransitionKind,
)
from appliance.model.words import Mark

NOON_UNIX_S = 1_800_014_400.0
"""Friday, 15 January 2027, 12:00 UTC."""
NOON = Instant(unix_s=NOON_UNIX_S, monotonic_s=1000.0, boot_s=1000.0)
GENESIS = Subject(kind=SubjectKind.PROFILE, name="genesis")


def finding(
    sign: Sign,
    rule: AlertRule = AlertRule.LIVE_DOWN,
    subject: Subject = GENESIS,
    *,
    severity: Severity | None = None,
    is_proven: bool = False,
    fact: str = "down",
) -> Finding:
    return Finding(
        subject=subject, rule=rule, sign=sign, severity=severity, is_proven=is_proven, fact=fact
    )


def bad(
    rule: AlertRule = AlertRule.LIVE_DOWN,
    subject: Subject = GENESIS,
    *,
    severity: Severity | None = None,
    is_proven: bool = False,
    fact: str = "down",
) -> Finding:
    return finding(Sign.BAD, rule, subject, severity=severity, is_proven=is_proven, fact=fact)


def good(rule: AlertRule = AlertRule.LIVE_DOWN, subject: Subject = GENESIS) -> Finding:
    return finding(Sign.GOOD, rule, subject)


def unknown(rule: AlertRule = AlertRule.LIVE_DOWN, subject: Subject = GENESIS) -> Finding:
    return finding(Sign.UNKNOWN, rule, subject)


@dataclass(slots=True, kw_only=True)
class AlertRounds:
    """Rounds of the state machine, one after the other."""

    now: Instant = NOON
    book: AlertBook = field(default_factory=AlertBook)
    circumstances: AlertCircumstances = field(default_factory=AlertCircumstances)
    policy: AlertPolicy = field(default_factory=lambda: AlertPolicy(time_zone="UTC"))
    tables: AlertTables = STANDARD_TABLES
    transitions: list[Transition] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def pass_time(self, seconds: float, *, suspended: bool = False) -> None:
        """Turn the clocks on, without a look."""
        self.now = replace(
            self.now,
            unix_s=self.now.unix_s + seconds,
            monotonic_s=self.now.monotonic_s + (0 if suspended else seconds),
            boot_s=self.now.boot_s + seconds,
        )

    def look(self, *findings: Finding, times: int = 1, every_s: float = 10.0) -> Evaluation:
        """Look a number of times, each `every_s` after the one before; return the last evaluation."""
        result = Evaluation(book=self.book)
        for _ in range(times):
            self.pass_time(every_s)
            result = self.act(
                evaluate(
                    self.book,
                    findings,
                    self.circumstances,
                    self.policy,
                    self.now,
                    tables=self.tables,
                )
            )
        return result

    def look_for(self, seconds: float, *findings: Finding) -> None:
        """Look every 10 s for a time."""
        self.look(*findings, times=round(seconds / 10))

    def act(self, evaluation: Evaluation) -> Evaluation:
        """Take over the result of an evaluation or of an action."""
        self.book = evaluation.book
        self.transitions += evaluation.transitions
        self.notices += evaluation.notices
        self.cancelled += evaluation.cancelled
        return evaluation

    def mark(self, mark: Mark, subject: Subject = GENESIS) -> None:
        """Change the mark of a subject."""
        marks = {**self.circumstances.marks, subject: mark}
        self.circumstances = replace(self.circumstances, marks=marks)

    def state(
        self, rule: AlertRule = AlertRule.LIVE_DOWN, subject: Subject = GENESIS
    ) -> AlertState | None:
        return self.book.states.get((subject, rule))

    @property
    def told(self) -> Sequence[TransitionKind]:
        """Kinds of the notices so far, in order."""
        return [notice.transition.kind for notice in self.notices]

    @property
    def recorded(self) -> Sequence[tuple[TransitionKind, bool]]:
        """Kinds of the transitions so far, each with whether targets are told."""
        return [(each.kind, each.delivered) for each in self.transitions]
