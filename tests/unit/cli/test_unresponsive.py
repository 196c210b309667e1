"""An engine that runs and does not answer has a state of its own, in every status that is shown."""

import io
from typing import Any, cast

import pytest

from appliance.cli.status_screens import show_status
from appliance.cli.terminal import Terminal
from appliance.planning.status.document import AlertSection, StatusDocument
from appliance.planning.status.profile_verdict import profile_exit
from appliance.presentation.health_sections import alert_section, with_alerts
from appliance.web.api.resources import unready
from appliance.web.page.profile_cards import profile_cards
from tests.fakes.alert_answers import alert_answer, alerts_answer
from tests.fakes.supervisor_documents import profile_row, status_document

BEGAN: float = 1_800_000_000.0
FACT = "down: its engine does not answer"


def section(**changes: object) -> AlertSection | None:
    """Return the section with an alert that fires on genesis."""
    values: dict[str, Any] = {"rule": "live-down", "severity": "critical", "fact": FACT, **changes}
    return alert_section({"alerts": alerts_answer([alert_answer(BEGAN + 60, **values)])})


def document(**row: object) -> dict[str, Any]:
    """Return the supervisor's document of a box on which genesis serves, as far as it sees."""
    values: dict[str, Any] = {"since_unix_s": BEGAN, **row}
    genesis = profile_row("genesis", "serving", mark="live", committed=True, **values)
    return status_document(genesis, verdict={"state": "serving", "exit": 0, "why": []})


def seen(found: StatusDocument) -> tuple[str, int, int, bool, str]:
    """Return what is shown: state, exit statuses of box and profile, readiness, sign and state on the page."""
    (row,) = found["profiles"]
    (card,) = profile_cards(found, now=BEGAN + 90)
    is_ready = not unready(cast("dict[str, Any]", found))
    assert card.state == row["state"]
    return row["state"], found["verdict"]["exit"], profile_exit(row), is_ready, card.glyph


@pytest.mark.parametrize("rule", ["live-down", "no-progress"])
def test_an_engine_that_does_not_answer_is_unresponsive(rule: str) -> None:
    """State, exit status, verdict, readiness and page agree, with the command to type."""
    found = with_alerts(document(), section(rule=rule))
    assert seen(found) == ("unresponsive", 1, 1, False, "✗")
    assert found["verdict"]["why"] == [
        f"genesis does not answer ({FACT}): appliance restart genesis"
    ]
    screen = io.StringIO()
    show_status(found, Terminal(stream=screen), now=BEGAN + 90)
    assert "✗ genesis" in screen.getvalue()
    assert "● genesis" not in screen.getvalue()


def test_an_engine_with_a_stall_is_unresponsive_without_an_agent() -> None:
    """The supervisor sees requests without progress itself."""
    stall = {"in_flight": 1, "quiet_s": 40.0}
    found = with_alerts(document(stall=stall, note="no progress: 1 request in flight"), None)
    assert seen(found)[0] == "unresponsive"


@pytest.mark.parametrize(
    ("row", "alert"),
    [
        ({}, {"rule": "slow"}),
        ({}, {"ended_unix_s": BEGAN + 70, "flapping": True}),
        ({"since_unix_s": BEGAN + 61}, {}),
        ({}, {"subject": "profile:aeon"}),
    ],
    ids=["another fault", "well again", "restarted since", "another profile"],
)
def test_an_engine_that_answers_serves(row: dict[str, Any], alert: dict[str, Any]) -> None:
    """Another fault, one that is over, and one of an earlier process leave the state as it is."""
    assert seen(with_alerts(document(**row), section(**alert))) == ("serving", 0, 0, True, "●")
