"""`alerts`: the list, one alert, what operators change, a test alert, and the outbox."""

import json
import time
from collections.abc import Mapping

import pytest

from appliance.wire.conversation import ErrorEvent, ResultEvent
from tests.fakes.alert_answers import alert_answer, alerts_answer, delivery_answer
from tests.fakes.cli_box import CliBox
from tests.fakes.cli_call import call
from tests.fakes.health_server import FakeHealthAgent

NOW = time.time()
AT = NOW - 5 * 3600 - 60
DAY_S = 86_400.0
SLOW = "#A17 slow: 27.1 tok/s (was 41.0)"
NOT_RUNNING = "health agent not running: sudo systemctl start appliance-health\n"
ROW = {
    "state": "sent",
    "target": "phone",
    "text": "",
    "created_unix_s": AT,
    "settled_unix_s": AT + 120,
    "transition": {
        "alert": "A17",
        "kind": "fired",
        "fact": "slow",
        "subject": {"kind": "profile", "name": "genesis"},
    },
}

UNTOLD = "nobody is told of alerts: sudo appliance target add NAME"


@pytest.fixture(autouse=True)
def box(here: CliBox) -> CliBox:
    """Return the box of each command, whether a test names it or not."""
    return here


def clock(unix_s: float) -> str:
    return time.strftime("%H:%M", time.localtime(unix_s))


def answering(box: CliBox, details: Mapping[str, object], message: str = "") -> FakeHealthAgent:
    return FakeHealthAgent(
        box.health_socket, {"alerts": [ResultEvent(message=message, details=details)]}
    )


def test_the_list_has_alerts_silences_windows_and_delivery(box: CliBox) -> None:
    """Each alert says since when it is, who knows of it, why it may be, and what to type."""
    silence = {
        "subject": {"kind": "watch", "name": "nas"},
        "until_unix_s": NOW + 1800,
        "by": "ana",
        "reason": "new disks",
    }
    window = {
        "name": "backup",
        "days": ["mon", "tue"],
        "begin": "02:00",
        "minutes": 90,
        "subjects": ["nas"],
        "reason": "busy disks",
    }
    box_alert = alert_answer(
        AT, alert="A18", subject="box", severity="critical", fact="disk full", sent_unix_s=None,
        reason="silenced: move", details=[], likely="", command="",
    )  # fmt: skip
    answer = alerts_answer([box_alert, alert_answer(AT)], silences=[silence], windows=[window])
    with answering(box, answer) as agent:
        ended = call("alerts")
        call("alerts", "list")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        f"▼ critical the box #A18 disk full, since {clock(AT)} (5 h), silenced: move",
        f"▼ warning  genesis {SLOW}, since {clock(AT)} (5 h), sent {clock(AT + 120)}",
        "    4 probes, −34 %",  # noqa: RUF001 - a minus sign
        "    likely: 11 of 49 layers on the CPU",
        "    do: appliance status genesis",
        f"nas is silent until {clock(NOW + 1800)}, by ana: new disks",
        "window backup  mon, tue  02:00 for 90 min  nas  (busy disks)",
        "heartbeat ok 14 s ago · outbox empty",
    ]
    assert [request["args"] for request in agent.requests] == [{"action": "list"}] * 2


def test_a_crowd_is_counted(box: CliBox) -> None:
    """Alerts for which the answer had no room are a number."""
    with answering(box, {**alerts_answer([alert_answer(AT)]), "left_off": 700}):
        assert "and 700 more" in call("alerts").out.splitlines()


def test_a_quiet_box_says_so(box: CliBox) -> None:
    """Without an alert the list has one line on that, and the delivery."""
    with answering(box, alerts_answer()):
        assert call("alerts").out == "no alert\nheartbeat ok 14 s ago · outbox empty\n"


@pytest.mark.parametrize(
    ("delivery", "line"),
    [
        (
            {"targets": 0, "heartbeat_set": False},
            f"{UNTOLD} · outbox empty",
        ),
        (
            {"targets": 0},
            f"{UNTOLD} · heartbeat ok 14 s ago · outbox empty",
        ),
        (
            {"enabled": False, "targets": 0},
            "nobody is told of alerts: alerts.enabled is false · outbox empty",
        ),
        (
            {"heartbeat_set": False, "heartbeat_s": None},
            "nobody would notice if this box died: sudo appliance target heartbeat · outbox empty",
        ),
        (
            {"heartbeat_trouble": "not reached: phone", "heartbeat_s": 720.0},
            "not reached: phone (last heartbeat 12 min ago) · outbox empty",
        ),
        (
            {"heartbeat_trouble": "no heartbeat: starting", "heartbeat_s": None},
            "no heartbeat: starting (last heartbeat: none) · outbox empty",
        ),
        (
            {"waiting": 3, "oldest_s": 7500.0, "dead": 1, "trouble": "disk full"},
            "heartbeat ok 14 s ago · outbox: 3 waiting, the oldest for 2 h, 1 given up, disk full",
        ),
        ({"waiting": 1}, "heartbeat ok 14 s ago · outbox: 1 waiting"),
    ],
)
def test_delivery_nags_and_tells_trouble(
    box: CliBox, delivery: Mapping[str, object], line: str
) -> None:
    """The line names what keeps people from being told, and the command that mends it."""
    with answering(box, {**alerts_answer(), "delivery": delivery_answer(**delivery)}):
        assert call("alerts").out.splitlines()[-1] == line


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ({"acked_by": "ana"}, "acked by ana"),
        ({"sent_unix_s": None, "gate": "mark"}, "mark"),
        ({"sent_unix_s": None}, "not sent"),
    ],
)
def test_who_knows_of_an_alert(box: CliBox, more: Mapping[str, object], end: str) -> None:
    """An ack is told before the message, and the reason of silence where there is none."""
    with answering(box, alerts_answer([alert_answer(AT, **more)])):
        assert call("alerts").out.splitlines()[0].endswith(f"(5 h), {end}")


def test_old_times_have_their_day(box: CliBox) -> None:
    """An hour of another day would be taken for today's."""
    at = NOW - 3 * DAY_S
    with answering(box, alerts_answer([alert_answer(at)])):
        first = call("alerts").out.splitlines()[0]
    assert time.strftime("since %a %d %b %H:%M (3 d)", time.localtime(at)) in first


def test_an_alert_is_shown_with_its_history(box: CliBox) -> None:
    """State, changes and messages; an alert that is over has no state."""
    change = {
        "id": 3,
        "unix_s": 1_794_888_600.0,
        "kind": "fired",
        "alert": "A17",
        "subject": "profile:genesis",
        "rule": "slow",
        "episode": 1,
        "severity": "warning",
        "fact": "slow",
    }
    details = {"alert": alert_answer(AT), "changes": [change], "rows": [ROW]}
    with answering(box, details) as agent:
        lines = call("alerts", "show", "#A17").out.splitlines()
        call("alerts", "show", "A17")
    assert lines[0].startswith("▼ warning  genesis #A17 slow: 27.1 tok/s")
    assert lines[-2:] == [
        "Tue 17 Nov 04:10  ▼ #A17 genesis fired: slow",
        f"{clock(AT + 120)}  sent       phone  #A17 fired: genesis slow",
    ]
    assert [r["args"] for r in agent.requests] == [{"action": "show", "alert": "A17"}] * 2
    box.health_socket.unlink()
    with answering(box, {"alert": None, "changes": [change], "rows": []}):
        assert len(call("alerts", "show", "A17").out.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "args"),
    [
        ("ack A17", {"action": "ack", "alert": "A17", "by": ""}),
        (
            "silence genesis",
            {"action": "silence", "name": "genesis", "for_s": 7200.0, "reason": "", "by": ""},
        ),
        (
            "silence #A17 --for 1d --reason move",
            {"action": "silence", "name": "A17", "for_s": DAY_S, "reason": "move", "by": ""},
        ),
        ("unsilence genesis", {"action": "unsilence", "name": "genesis", "by": ""}),
    ],
)
def test_changes_are_sent_and_their_answer_told(
    box: CliBox, words: str, args: Mapping[str, object]
) -> None:
    """The agent's sentence is the output; with --json it is a document."""
    with answering(box, {"until_unix_s": 9.0}, "done so") as agent:
        ended = call("alerts", *words.split())
        document = json.loads(call("alerts", *words.split(), "--json").out)
    assert (ended.status, ended.out) == (0, "done so\n")
    assert agent.requests[0]["args"] == args
    assert document == {"message": "done so", "until_unix_s": 9.0}


@pytest.mark.parametrize("status", [0, 1])
def test_a_test_alert_tells_of_each_target(box: CliBox, status: int) -> None:
    """The status is 1 unless every target has it."""
    rows = [
        {"target": "phone", "state": "sent", "text": ""},
        {"target": "mail", "state": "queued", "text": "no route to the server"},
    ]
    result = ResultEvent(exit=status, message="1 of 2 targets has it", details={"targets": rows})
    with FakeHealthAgent(box.health_socket, {"alerts": [result]}) as agent:
        ended = call("alerts", "test")
        assert call("alerts", "test", "phone", "--json").status == status
    assert ended.status == status
    assert ended.out.splitlines() == [
        "1 of 2 targets has it",
        "    phone: sent",
        "    mail: queued (no route to the server)",
    ]
    assert [request["args"]["target"] for request in agent.requests] == [None, "phone"]  # type: ignore[index]


def test_the_outbox_is_listed_oldest_first(box: CliBox) -> None:
    """The newest row stands above the delivery's line; a row says what became of it."""
    waits = {**ROW, "state": "queued", "settled_unix_s": None, "text": "429, again in 1 min"}
    details = {"rows": [waits, ROW], "delivery": delivery_answer(waiting=1)}
    with answering(box, details) as agent:
        lines = call("alerts", "outbox").out.splitlines()
        call("alerts", "outbox", "-n", "5000")
    assert lines == [
        f"{clock(AT + 120)}  sent       phone  #A17 fired: genesis slow",
        f"{clock(AT)}  queued     phone  #A17 fired: genesis slow (429, again in 1 min)",
        "heartbeat ok 14 s ago · outbox: 1 waiting",
    ]
    assert [request["args"]["most"] for request in agent.requests] == [20, 1000]  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("show", "alerts show wants an alert"),
        ("ack", "alerts ack wants an alert"),
        ("silence", "alerts silence wants a name"),
        ("unsilence", "alerts unsilence wants a name"),
        ("list x", "alerts list takes no NAME"),
        ("outbox x", "alerts outbox takes no NAME"),
        ("ack A1 --for 1h", "alerts ack takes no --for"),
        ("ack A1 --reason x", "alerts ack takes no --reason"),
        ("list -n 3", "alerts list takes no --lines"),
    ],
)
def test_wrong_command_lines(words: str, text: str) -> None:
    """An argument that is missing or too much is told before anybody is asked."""
    ended = call("alerts", *words.split())
    assert (ended.status, ended.err) == (2, f"{text}: appliance alerts --help\n")


@pytest.mark.parametrize("action", ["list", "show A1", "ack A1", "silence a", "test", "outbox"])
def test_without_an_agent(action: str) -> None:
    """Each action ends with the command that starts the agent."""
    ended = call("alerts", *action.split())
    assert (ended.status, ended.err) == (69, NOT_RUNNING)


def test_a_refusal_is_told(box: CliBox) -> None:
    """The agent's sentence and its kind make the end of the command."""
    refusal = ErrorEvent("not-found", 'no alert "A9" fires: appliance alerts')
    with FakeHealthAgent(box.health_socket, {"alerts": [refusal]}):
        ended = call("alerts", "ack", "A9")
    assert (ended.status, ended.err) == (4, 'no alert "A9" fires: appliance alerts\n')
