"""Report on alerts: the rows of what is not over, and names of subjects in sentences."""

from dataclasses import replace

import pytest

from appliance.alerts.book import AlertBook, DeliveryGate
from appliance.alerts.report import open_alerts, subject_phrase
from appliance.model.alerts import BOX, Severity, Subject, SubjectKind, TransitionKind
from tests.fakes.alert_samples import AEON, GENESIS, told, transition


def test_open_alerts_have_an_order() -> None:
    """The most severe come first, of one severity those that fired first; others are left out."""
    nas = Subject(kind=SubjectKind.WATCH, name="nas")
    book = told(
        [
            transition(subject=AEON, severity=Severity.WARNING),
            transition(),
            transition(subject=nas),
            transition(TransitionKind.RESOLVED, subject=BOX, alert="A9"),
        ]
    ).book
    fired = {GENESIS: 9.0, nas: 5.0, AEON: 1.0, BOX: None}
    states = {
        key: replace(state, fired_unix_s=fired[state.subject]) for key, state in book.states.items()
    }
    rows = open_alerts(AlertBook(states=states), {"Aaeon1": 7.0})
    assert [row.subject for row in rows] == ["watch:nas", "profile:genesis", "profile:aeon"]
    assert [row.sent_unix_s for row in rows] == [None, None, 7.0]


def test_a_row_tells_why_nobody_is_told() -> None:
    """The gate is a word for programs, the reason a phrase for people."""
    book = told([transition()]).book
    states = {
        key: replace(state, gate=DeliveryGate.SILENCE, reason="silenced: move")
        for key, state in book.states.items()
    }
    (row,) = open_alerts(AlertBook(states=states), {})
    assert (row.gate, row.reason) == ("silence", "silenced: move")
    (told_row,) = open_alerts(book, {})
    assert told_row.gate is None


def test_every_row_has_a_command() -> None:
    """A finding that names none has its rule's, with the subject's name, as its messages have."""
    book = told([transition()]).book
    commands = []
    for named in ("", "df -h /models"):
        states = {key: replace(state, command=named) for key, state in book.states.items()}
        commands += [row.command for row in open_alerts(AlertBook(states=states), {})]
    assert commands == ["appliance status genesis", "df -h /models"]


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (BOX, "the box"),
        (GENESIS, "genesis"),
        (Subject(kind=SubjectKind.WATCH, name="nas"), "nas"),
        (Subject(kind=SubjectKind.GPU, name="GPU-1a"), "the GPU GPU-1a"),
    ],
)
def test_subjects_in_sentences(subject: Subject, words: str) -> None:
    """Each kind of subject has a form for people."""
    assert subject_phrase(subject) == words
