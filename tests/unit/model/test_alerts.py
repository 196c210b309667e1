"""The event that reports a transition of an alert."""

from tests.fakes.alert_samples import transition


def test_an_event_has_the_key_of_its_subject() -> None:
    """The event is the transition, with the subject as its key; in a store it has kind and name."""
    found = transition()
    event = found.event()
    assert event.subject == found.subject.text == "profile:genesis"
    assert {**event.fields(), "subject": found.subject} == found.fields()
