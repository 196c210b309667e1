"""Delivery of alerts over kills and failures, in small: real store, sender and notifier."""

import pytest

from tests.bench.outbox import OutboxScore, run_outbox
from tests.bench.outbox_agent import ends


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_by_kills_and_failures() -> None:
    """Processes that are killed five times between them send a message again at each, at most."""
    score = run_outbox(150, 5, 3)
    expected = OutboxScore(
        alerts=150,
        kills=5,
        faults=score.faults,
        lost=0,
        duplicates=score.duplicates,
        out_of_order=0,
        doubled_entries=0,
    )
    assert score == expected
    assert score.duplicates <= score.kills


def test_every_fifth_alert_that_is_not_among_the_last_is_over() -> None:
    """Ends are made only for alerts that others come after."""
    assert ends(20) == {5, 10}
