"""Rule of the watchdog: a function that judges its subjects at one look, and the texts of findings.

A rule says `Sign.BAD` for what is wrong whoever is told of it: the mark of a subject decides only that
(`alerts.book.alert_book`). It says `Sign.UNKNOWN` where a figure that it needs is missing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from appliance.alerts.watchdog_rules.snapshot import BoxLook
from appliance.alerts.watchdog_rules.watchdog_memory import WatchdogMemory
from appliance.model.alerts import AlertRule, Finding, Severity, Sign, Subject, SubjectKind
from appliance.model.wording import printable

Judge = Callable[[BoxLook, WatchdogMemory], Iterable[Finding]]
"""Function that judges all subjects of a rule, with the memory after the look."""

_MOST_FACT: Final = 80
_MOST_LINE: Final = 160
_MOST_DETAILS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogRule:
    """Rule of the registry."""

    rule: AlertRule
    judge: Judge
    source: str
    """Origin of the figures that it judges."""


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
    """Return a finding of a subject that is well; None: that cannot be told."""
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

    Without a command it has the one of its rule (`alerts.messages.rule_words`).
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
