"""Transitions, notices and evaluations as the alert state machine makes them, for other tests."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from appliance.alerts.book import AlertBook, AlertState, Evaluation
from appliance.model.alerts import (
    AlertPhase,
    AlertRule,
    Notice,
    Severity,
    Subject,
    SubjectKind,
    Transition,
    TransitionKind,
)

NOW = 1_800_000_000.0
GENESIS = Subject(kind=SubjectKind.PROFILE, name="genesis")
AEON = Subject(kind=SubjectKind.PROFILE, name="aeon")


def profile_subject(name: str) -> Subject:
    return Subject(kind=SubjectKind.PROFILE, name=name)


def transition(
    kind: TransitionKind = TransitionKind.FIRED,
    *,
    subject: Subject = GENESIS,
    rule: AlertRule = AlertRule.LIVE_DOWN,
    episode: int = 1,
    severity: Severity = Severity.CRITICAL,
    alert: str = "",
    unix_s: float = NOW,
) -> Transition:
    """A transition; its alert is named after its subject and episode, unless it has a name."""
    return Transition(
        unix_s=unix_s,
        kind=kind,
        alert=alert or f"A{subject.name}{episode}",
        subject=subject,
        rule=rule,
        episode=episode,
        severity=severity,
        fact="down",
        details=("3 of 5 looks found it so",),
        since_unix_s=unix_s - 30.0,
    )


def told(
    transitions: Iterable[Transition],
    *,
    book: AlertBook | None = None,
    not_before_unix_s: float = 0.0,
    is_digest: bool = False,
    cancelled: tuple[str, ...] = (),
) -> Evaluation:
    """An evaluation whose transitions are all told, with the states that follow from them."""
    changes = tuple(transitions)
    begun = book or AlertBook()
    return Evaluation(
        book=replace(begun, states={**begun.states, **{s.key: s for s in _states(changes)}}),
        transitions=list(changes),
        notices=[
            Notice(transition=one, not_before_unix_s=not_before_unix_s, is_digest=is_digest)
            for one in changes
        ],
        cancelled=list(cancelled),
    )


def _states(transitions: Sequence[Transition]) -> Iterable[AlertState]:
    for one in transitions:
        is_over = one.kind is TransitionKind.RESOLVED
        yield AlertState(
            subject=one.subject,
            rule=one.rule,
            phase=AlertPhase.OK if is_over else AlertPhase.FIRING,
            episode=one.episode,
            alert=one.alert,
            severity=one.severity,
            fact=one.fact,
            since_unix_s=one.since_unix_s,
            told=True,
        )
