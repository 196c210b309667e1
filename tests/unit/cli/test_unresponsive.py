"""An engine that runs and does not answer has a state of its own, in every status that is shown."""

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pytest

from appliance.cli.live.top_controls import TopState
from appliance.cli.live.top_screen import Size, top_lines
from appliance.cli.status_screens import show_status
from appliance.cli.terminal import Terminal
from appliance.model.gateway import Routed, Standing, State
from appliance.model.profile import Endpoint
from appliance.model.status import AlertSection, StatusDocument
from appliance.presentation.health_sections import alert_section, with_alerts
from appliance.presentation.status_markdown import markdown_lines
from appliance.routing.model_names import ModelDirectory, encode_model, encode_model_list
from appliance.status.profile_verdict import profile_exit
from appliance.web.api.resources import unready, whole_status
from appliance.web.box_documents import STALE_S, BoxDocuments
from appliance.web.metrics.pages import render_box
from appliance.web.page.cards import profile_cards
from appliance.web.page.view import status_document as page_document
from tests.fakes.alert_answers import alert_answer, alerts_answer
from tests.fakes.live_views import NOW_S, seen
from tests.fakes.supervisor_documents import as_status, profile_row, status_document

BEGAN: Final = 1_800_000_000.0
NOW: Final = BEGAN + 90
FACT: Final = "down: its engine does not answer"
GATEWAY: Final = State(standings={"genesis": Standing.SERVING}, committed=("genesis",))
DIRECTORY: Final = ModelDirectory(
    {"genesis": Routed(name="genesis", served=(), engine_name="m", endpoint=Endpoint(port=1))}
)


def answer(**changes: object) -> dict[str, Any]:
    """Return the answer of a health agent with an alert that fires on genesis."""
    values: dict[str, Any] = {"rule": "live-down", "severity": "critical", "fact": FACT, **changes}
    alerts = alerts_answer([alert_answer(BEGAN + 60, **values)])
    return {"profiles": {}, "trouble": [], "alerts": alerts}


def section(**changes: object) -> AlertSection | None:
    return alert_section(answer(**changes))


def document(**row: object) -> StatusDocument:
    """Return the supervisor's document of a box on which genesis serves, as far as it sees."""
    values: dict[str, Any] = {"since_unix_s": BEGAN, **row}
    genesis = profile_row("genesis", "serving", mark="live", committed=True, **values)
    verdict = {"state": "serving", "exit": 0, "why": []}
    return as_status(status_document(genesis, verdict=verdict, committed=["genesis"]))


def shown(status: StatusDocument, speeds: dict[str, Any]) -> StatusDocument:
    """Return the document as the command has it."""
    return with_alerts(status, alert_section(speeds))


def box(status: StatusDocument, speeds: dict[str, Any]) -> BoxDocuments:
    return BoxDocuments(
        unix_s=NOW, status=status, status_age_s=1.0, speeds=speeds, speeds_age_s=1.0
    )


# --- the surfaces --------------------------------------------------------------------


def screen(status: StatusDocument, speeds: dict[str, Any]) -> object:
    stream = io.StringIO()
    show_status(shown(status, speeds), Terminal(stream=stream), now=NOW)
    return "✗ genesis" in stream.getvalue(), "● genesis" in stream.getvalue()


def json_rows(status: StatusDocument, speeds: dict[str, Any]) -> object:
    found = msgspec.to_builtins(shown(status, speeds))
    return found["profiles"][0]["state"], found["verdict"]["state"], found["verdict"]["why"]


def exits(status: StatusDocument, speeds: dict[str, Any]) -> object:
    found = shown(status, speeds)
    return found.verdict.exit, profile_exit(found.profiles[0])


def top(status: StatusDocument, speeds: dict[str, Any]) -> object:
    terminal = Terminal(stream=io.StringIO(), colour=False, unicode=True, interactive=True)
    view = seen(msgspec.to_builtins(shown(status, speeds)))
    lines = top_lines(view, TopState(), terminal, Size(120, 30), now=NOW, now_s=NOW_S)
    return any("✗ genesis unrespons" in line for line in lines)


def page(status: StatusDocument, speeds: dict[str, Any]) -> object:
    found = page_document(box(status, speeds), status)
    (card,) = profile_cards(found, now=NOW)
    return card.state, card.glyph, found.verdict.state


def markdown(status: StatusDocument, speeds: dict[str, Any]) -> object:
    lines = markdown_lines(shown(status, speeds), now=NOW)
    return any("unresponsive" in line for line in lines)


def readiness(status: StatusDocument, speeds: dict[str, Any]) -> object:
    return unready(whole_status(box(status, speeds)))


def metrics(status: StatusDocument, speeds: dict[str, Any]) -> object:
    page = render_box(box(status, speeds), None, None)[1].decode()
    line = 'appliance_profile_state{profile="genesis",state="%s"} 1.0'
    verdict = 'appliance_verdict{state="%s"} 1.0'
    states = [state for state in ("serving", "unresponsive") if line % state in page]
    return states, [state for state in ("serving", "degraded") if verdict % state in page]


def models(status: StatusDocument, speeds: dict[str, Any]) -> object:
    """The list and the single model, of the names that the health agent tells the gateway."""
    rows = shown(status, speeds).profiles
    names = [row.name for row in rows if row.state == "unresponsive"]
    listed = json.loads(encode_model_list(DIRECTORY, GATEWAY, unresponsive=names))["data"]
    one = encode_model("genesis", DIRECTORY, GATEWAY, unresponsive=names)
    assert isinstance(one, bytes)
    assert json.loads(one) in listed
    return {(entry["state"], *entry["status"].values()) for entry in listed}


WHY = f"genesis does not answer ({FACT}): appliance restart genesis"
SURFACES: Final[Mapping[Callable[..., object], tuple[object, object]]] = {
    screen: ((False, True), (True, False)),
    json_rows: (("serving", "serving", []), ("unresponsive", "degraded", [WHY])),
    exits: ((0, 0), (1, 1)),
    top: (False, True),
    page: (("serving", "●", "serving"), ("unresponsive", "✗", "degraded")),
    markdown: (False, True),
    readiness: ([], ["genesis is unresponsive"]),
    metrics: ((["serving"], ["serving"]), (["unresponsive"], ["degraded"])),
    models: ({("serving", "loaded")}, {("unresponsive", "failed", True)}),
}
"""Words of each surface of an engine that answers, and of one that does not."""


@pytest.mark.parametrize("rule", ["live-down", "no-progress"])
@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.__name__)
def test_every_surface_shows_an_engine_that_does_not_answer(
    surface: Callable[..., object], rule: str
) -> None:
    """Status, exit status, verdict, `top`, page, readiness, metrics and the list of models agree."""
    well, unresponsive = SURFACES[surface]
    assert surface(document(), answer(rule="slow")) == well
    assert surface(document(), answer(rule=rule)) == unresponsive
    assert surface(document(), answer(rule=rule, ended_unix_s=BEGAN + 70, flapping=True)) == well


def test_an_engine_with_a_stall_is_unresponsive_without_an_agent() -> None:
    """The supervisor sees requests without progress itself."""
    stall = {"in_flight": 1, "quiet_s": 40.0}
    found = with_alerts(document(stall=stall, note="no progress: 1 request in flight"), None)
    assert found.profiles[0].state == "unresponsive"


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
    found = with_alerts(document(**row), section(**alert))
    assert found.profiles[0].state == "serving"


@pytest.mark.parametrize(
    "surface",
    [whole_status, lambda box: page_document(box, document())],
    ids=["API", "page"],
)
def test_an_agent_that_is_gone_judges_nothing(
    surface: Callable[[BoxDocuments], StatusDocument],
) -> None:
    """The last alerts of the agent stay on show; which engine answers now, nobody knows."""
    states = []
    for age_s in (STALE_S - 1, STALE_S):
        documents = BoxDocuments(
            unix_s=NOW, status=document(), status_age_s=1.0, speeds=answer(), speeds_age_s=age_s
        )
        found = surface(documents)
        states.append(found.profiles[0].state)
        assert found.alerts
    assert states == ["unresponsive", "serving"]
