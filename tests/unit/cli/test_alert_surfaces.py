"""An alert that comes and goes, on every surface: each says so, and since when its subject is well."""

import io
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace

from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.messages import Rendering, message
from appliance.alerts.report import open_alerts
from appliance.cli.event_lines import profile_alert_lines
from appliance.cli.live.box_sections import alert_section_lines
from appliance.cli.terminal import Terminal
from appliance.model.alerts import TransitionKind
from appliance.model.status import OperationRow
from appliance.presentation.box_texts import header
from appliance.presentation.health_sections import alert_section
from appliance.presentation.status_markdown import markdown_lines
from appliance.web.page.cards import alerts_view
from appliance.wire.conversation import ResultEvent
from tests.fakes.alert_answers import alerts_answer
from tests.fakes.alert_rounds import AlertRounds, bad, good
from tests.fakes.cli_box import CliBox
from tests.fakes.cli_call import call
from tests.fakes.health_server import FakeHealthAgent
from tests.fakes.supervisor_documents import as_status, profile_row, status_document

RESTART = OperationRow(
    id=3,
    kind="restart",
    target=("genesis",),
    profiles=("genesis",),
    phase="load",
    phase_s=5.0,
    deadline_s=None,
)
AGAIN = "#A2 comes and goes: down: frozen, serves again since"


def frozen_twice() -> AlertRounds:
    """Return the book of an engine that was frozen twice, and restarted by an operation each time."""
    rounds = AlertRounds()
    for _ in range(2):
        rounds.look_for(60, bad(fact="down: frozen"))
        rounds.circumstances = AlertCircumstances(operation=RESTART)
        rounds.look_for(30, good())
        rounds.circumstances = AlertCircumstances()
        rounds.look_for(120, good())
    return rounds


def row(rounds: AlertRounds) -> Mapping[str, object]:
    """Return the row of the alert, as it goes over the socket."""
    (alert,) = open_alerts(rounds.book, {})
    found: Mapping[str, object] = json.loads(json.dumps(asdict(alert)))
    return found


def test_every_text_says_that_it_comes_and_goes_and_serves_since_when(here: CliBox) -> None:
    """Status, `alerts`, `alerts show`, top, page, Markdown and phone agree; none is critical, or says what to do."""
    rounds = frozen_twice()
    alert = row(rounds)
    answer = alerts_answer([alert])
    box = status_document(profile_row("genesis", "serving", mark="live", committed=True))
    alerts = alert_section({"alerts": answer})
    document = as_status(box).replaced(alerts=alerts)
    now = rounds.now.unix_s
    terminal = Terminal(stream=io.StringIO())
    texts: dict[str, list[str]] = {
        "status": list(profile_alert_lines(alerts, "genesis", terminal, now=now)),
        "top": list(alert_section_lines(document, terminal, columns=200, now=now)),
        "page": [f"{card.severity} {card.text}" for card in alerts_view(alerts, now=now).cards],
        "markdown": list(markdown_lines(document, now=now)),
    }
    details = {**answer, "alert": alert, "changes": [], "rows": []}
    with FakeHealthAgent(here.health_socket, {"alerts": [ResultEvent(details=details)]}):
        texts["alerts"] = call("alerts").out.splitlines()
        texts["show"] = call("alerts", "show", "A2").out.splitlines()
    for surface, lines in texts.items():
        (line,) = [line for line in lines if "#A2" in line]
        assert AGAIN in line, surface
        assert "critical" not in line
        assert not any("restart" in other for other in lines), surface
    assert header(document).endswith("alerts 0")


def test_the_phone_hears_that_it_comes_and_goes_and_once_of_its_end() -> None:
    """Also where the recovery was in an operation, which holds the message back until it is over."""
    rounds = frozen_twice()
    assert rounds.told[-2:] == [TransitionKind.FIRED, TransitionKind.FLAPPING]
    told = rounds.notices[-1].transition
    clock = lambda unix_s: time.strftime("%H:%M", time.gmtime(unix_s))  # noqa: E731
    shown = message(told, Rendering(host="garage", now_unix_s=told.unix_s, clock=clock))
    assert shown.title == "≈ genesis comes and goes: down: frozen #A2"
    assert shown.body.startswith("garage · serves again since 12:0")
    assert "Do:" not in shown.body
    rounds.look_for(2000, good())
    assert rounds.told[-2:] == [TransitionKind.FLAPPING, TransitionKind.RESOLVED]
    end = rounds.notices[-1].transition
    body = message(end, Rendering(host="garage", now_unix_s=end.unix_s, clock=clock)).body
    assert "stable for 30 min" in body
    assert open_alerts(rounds.book, {}) == ()


def test_a_new_alert_has_a_start_of_its_own() -> None:
    """The bad looks of an episode that is over are none of the next one."""
    rounds = AlertRounds()
    rounds.look_for(60, bad())
    rounds.look(good(), times=2)
    over_unix_s = rounds.now.unix_s
    rounds.look(bad())
    assert rounds.told == [TransitionKind.FIRED, TransitionKind.RESOLVED]
    rounds.look(bad(), times=2)
    fired = rounds.notices[-1].transition
    assert (fired.alert, fired.kind, fired.since_unix_s) == ("A2", "fired", over_unix_s + 10)


def test_a_stop_ends_what_comes_and_goes() -> None:
    """During a hold nothing of a model that was stopped is shown, and whoever was told hears of the end."""
    rounds = frozen_twice()
    rounds.look(replace(good(), is_final=True, over="was stopped"))
    assert open_alerts(rounds.book, {}) == ()
    assert rounds.notices[-1].transition.over == "was stopped"
