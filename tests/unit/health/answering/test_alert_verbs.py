"""Verbs about alerts: questions and changes, on a real store and the watchdog's own book."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from appliance.alerts.outbox import OutboxRow
from appliance.health.delivery_figures import sent_alerts
from appliance.health.heartbeat import HeartbeatFacts
from appliance.model.alerts import (
    BOX,
    AlertRule,
    OutboxState,
    Severity,
    Subject,
    SubjectKind,
    TransitionKind,
)
from appliance.model.errors import (
    BadRequestError,
    NotFoundError,
    PreconditionError,
    UnknownProfileError,
)
from appliance.wire.alert_requests import (
    AckRequest,
    AddWindowRequest,
    AlertQuestion,
    AlertRequest,
    AlertsRequest,
    OutboxRequest,
    RemoveWindowRequest,
    SilenceRequest,
    TestAlertRequest,
    UnsilenceRequest,
    WindowsRequest,
)
from appliance.wire.conversation import MAX_LINE_BYTES, ResultEvent
from appliance.wire.health_socket import HEALTH
from tests.fakes.alert_samples import AEON, GENESIS, transition
from tests.fakes.watched_alerts import LeapingClock, WatchedAlerts, watched_alerts

NAS = Subject(kind=SubjectKind.WATCH, name="nas")
GPU = Subject(kind=SubjectKind.GPU, name="GPU-1a2b")


async def details(box: WatchedAlerts, request: AlertQuestion) -> Mapping[str, Any]:
    """Return the fields of an answer, as a client reads them."""
    line = HEALTH.encode_event(await box.verbs.answer(request, "ana"))
    event = HEALTH.decode_event(line)
    assert isinstance(event, ResultEvent)
    return event.details


async def message(box: WatchedAlerts, request: AlertQuestion) -> str:
    return (await box.verbs.answer(request, "ana")).message


async def test_open_alerts_are_listed_the_most_severe_first(tmp_path: Path) -> None:
    """Of one severity the oldest comes first; each says when the first target had its message."""
    async with watched_alerts(tmp_path) as box:
        warning = transition(subject=AEON, severity=Severity.WARNING)
        await box.tell(warning, transition(subject=NAS, rule=AlertRule.WATCH_DOWN), transition())
        await box.tell(transition(TransitionKind.RESOLVED, subject=NAS, rule=AlertRule.WATCH_DOWN))
        await box.settle(target="phone")
        found = await details(box, AlertsRequest())
        first, second = found["alerts"]
        assert (first["alert"], first["subject"]) == ("Agenesis1", "profile:genesis")
        assert first["sent_unix_s"] == pytest.approx(box.clock.unix_s(), abs=60)
        assert (second["alert"], second["sent_unix_s"]) == ("Aaeon1", None)
        assert (found["left_off"], found["silences"], found["windows"]) == (0, [], [])


async def test_the_delivery_has_outbox_and_heartbeat(tmp_path: Path) -> None:
    """Rows that wait, rows that were given up, ages, and what is in the way."""
    async with watched_alerts(tmp_path) as box:
        empty = (await details(box, AlertsRequest()))["delivery"]
        assert (empty["targets"], empty["waiting"], empty["oldest_s"]) == (2, 0, None)
        assert (empty["heartbeat_set"], empty["heartbeat_s"]) == (False, None)
    async with watched_alerts(tmp_path) as box:
        now_unix_s = box.clock.unix_s()
        box.beat = HeartbeatFacts(
            ping_unix_s=now_unix_s - 90,
            armed=("phone",),
            armed_unix_s=now_unix_s - 30,
            trouble="not reached: mail",
        )
        box.sending_trouble = "the notifier does not answer"
        await box.tell(transition())
        await box.settle(OutboxState.DEAD, target="mail")
        found = (await details(box, AlertsRequest()))["delivery"]
    assert (found["waiting"], found["dead"], found["enabled"]) == (1, 1, True)
    assert 0 <= found["oldest_s"] < 60
    assert found["heartbeat_set"] is True
    assert 30 <= found["heartbeat_s"] < 60
    assert found["heartbeat_trouble"] == "not reached: mail"
    assert found["attempts"]["phone"] == {"sent": 5, "retry": 0, "refused": 0}
    assert set(found["attempts"]) == {"phone", "mail"}
    assert found["trouble"] == "the notifier does not answer"


async def test_a_status_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """The figures of the last answer stand in while the store is busy, and are renewed after it."""
    async with watched_alerts(tmp_path) as box:
        await box.verbs.overview()
        await box.tell(transition())
        assert (await details(box, AlertsRequest()))["delivery"][
            "waiting"
        ] == 0  # of 2 s ago at most
        box.figures._read_s = float("-inf")
        assert (await details(box, AlertsRequest()))["delivery"]["waiting"] == 2


async def test_one_alert_has_state_changes_and_rows(tmp_path: Path) -> None:
    """One that is over has no state, and its record all the same."""
    async with watched_alerts(tmp_path) as box:
        await box.tell(transition(), transition(subject=AEON))
        await box.verbs.answer(AckRequest("Agenesis1"), "ana")
        found = await details(box, AlertRequest("Agenesis1"))
        assert found["alert"]["acked_by"] == "ana"
        assert [change["kind"] for change in found["changes"]] == ["fired", "acked"]
        assert {row["target"] for row in found["rows"]} == {"phone", "mail"}
        await box.tell(transition(TransitionKind.RESOLVED))
        over = await details(box, AlertRequest("Agenesis1"))
        assert over["alert"] is None
        assert [change["kind"] for change in over["changes"]] == ["fired", "acked", "resolved"]
        with pytest.raises(NotFoundError, match='no alert "A99" is on record'):
            await box.verbs.answer(AlertRequest("A99"), "ana")


async def test_an_ack_is_for_alerts_that_fire(tmp_path: Path) -> None:
    """Another id is refused; the sentence says what the ack does."""
    async with watched_alerts(tmp_path) as box:
        await box.tell(transition())
        assert await message(box, AckRequest("Agenesis1")) == (
            "Agenesis1 is acked: no more reminders, its end is told"
        )
        with pytest.raises(NotFoundError, match="fires: appliance alerts"):
            await box.verbs.answer(AckRequest("A99"), "ana")


@pytest.mark.parametrize(
    ("name", "subject", "words"),
    [
        ("genesis", GENESIS, "genesis"),
        ("nas", NAS, "nas"),
        ("box", BOX, "the box"),
        ("GPU-1a2b", GPU, "the GPU GPU-1a2b"),
        ("Agenesis1", GENESIS, "genesis"),
    ],
)
async def test_a_subject_is_silenced_by_any_of_its_names(
    tmp_path: Path, name: str, subject: Subject, words: str
) -> None:
    """A profile, a watch, the box, a GPU that had an alert, or the id of an alert."""
    async with watched_alerts(tmp_path) as box:
        await box.tell(transition(), transition(subject=GPU, rule=AlertRule.GPU_LOST))
        found = await box.verbs.answer(SilenceRequest(name, 3600.0, "move"), "ana")
        assert found.message == f"nobody is told of {words} for 1 h"
        assert found.details["until_unix_s"] == pytest.approx(box.clock.unix_s() + 3600, abs=60)
        (silence,) = box.book.silences
        assert (silence.subject, silence.by, silence.reason) == (subject, "ana", "move")
        (told,) = (await details(box, AlertsRequest()))["silences"]
        assert told["subject"] == {"kind": subject.kind.value, "name": subject.name}
        assert await message(box, UnsilenceRequest(name)) == f"the silence of {words} is ended"
        assert box.book.silences == ()


async def test_an_unknown_name_has_a_suggestion(tmp_path: Path) -> None:
    """A watch may be the likely one."""
    async with watched_alerts(tmp_path) as box:
        for request in (SilenceRequest("nass"), UnsilenceRequest("nass")):
            with pytest.raises(UnknownProfileError, match='Did you mean "nas"'):
                await box.verbs.answer(request, "ana")
        with pytest.raises(BadRequestError, match="is not silenced"):
            await box.verbs.answer(UnsilenceRequest("nas"), "ana")
        with pytest.raises(BadRequestError, match="7 days"):
            await box.verbs.answer(SilenceRequest("nas", 8 * 86_400.0), "ana")


async def test_windows_are_planned_and_removed(tmp_path: Path) -> None:
    """Subjects are checked by their names; one of the same name is replaced."""
    async with watched_alerts(tmp_path) as box:
        request = AddWindowRequest("backup", "02:00", 90, ("mon",), ("nas", "box"), "busy disks")
        assert await message(box, request) == "the window backup is planned"
        await box.verbs.answer(request.replaced(begin="03:00"), "ana")
        (window,) = (await details(box, WindowsRequest()))["windows"]
        assert (window["begin"], window["subjects"]) == ("03:00", ["nas", "box"])
        assert (await details(box, AlertsRequest()))["windows"] == [window]
        with pytest.raises(UnknownProfileError, match='profile or watch "x"'):
            await box.verbs.answer(request.replaced(subjects=("x",)), "ana")
        with pytest.raises(BadRequestError, match="is not a time of day"):
            await box.verbs.answer(request.replaced(begin="3"), "ana")
        remove = RemoveWindowRequest("backup")
        assert await message(box, remove) == "the window backup is removed"
        with pytest.raises(NotFoundError, match='no window "backup"'):
            await box.verbs.answer(remove, "ana")


async def test_the_outbox_is_told_newest_first(tmp_path: Path) -> None:
    """Each row has its transition, its target, its state and what was said of it."""
    async with watched_alerts(tmp_path) as box:
        await box.tell(transition())
        await box.tell(transition(subject=AEON))
        await box.settle(text="taken", target="phone")
        found = await details(box, OutboxRequest(3))
        assert [row["transition"]["alert"] for row in found["rows"]] == [
            "Aaeon1",
            "Aaeon1",
            "Agenesis1",
        ]
        assert {row["state"]: row["text"] for row in found["rows"]} == {
            "queued": "",
            "sent": "taken",
        }
        assert found["delivery"]["waiting"] == 2


async def test_a_crowd_of_alerts_fits_in_an_answer(tmp_path: Path) -> None:
    """The rest is counted, and the line is one that clients take."""
    async with watched_alerts(tmp_path) as box:
        one = transition().replaced(fact="x" * 300, details=("y" * 300,) * 8)
        subjects = (Subject(kind=SubjectKind.PROFILE, name=f"p{n}") for n in range(1000))
        await box.tell(
            *(one.replaced(subject=subject, alert=f"B{subject.name}") for subject in subjects)
        )
        answer = await box.verbs.answer(AlertsRequest(), "ana")
    shown = answer.details["alerts"]
    assert isinstance(shown, list)
    assert answer.details["left_off"] == 1000 - len(shown) > 0
    assert len(HEALTH.encode_event(answer)) < MAX_LINE_BYTES / 2


def test_the_first_message_about_a_fire_is_the_time_of_sending() -> None:
    """A reminder, and a row that waits, are not; the earliest target counts."""
    rows = [
        _row(10.0, OutboxState.SENT),
        _row(5.0, OutboxState.SENT),
        _row(1.0, OutboxState.SENT, TransitionKind.REMINDED),
        _row(None, OutboxState.QUEUED),
    ]
    assert sent_alerts(rows) == {"Agenesis1": 5.0}


def _row(
    settled_unix_s: float | None,
    state: OutboxState,
    kind: TransitionKind = TransitionKind.FIRED,
) -> OutboxRow:
    return OutboxRow(
        key="",
        target="phone",
        transition=transition(kind),
        created_unix_s=0.0,
        state=state,
        settled_unix_s=settled_unix_s,
    )


# --- a test alert ----------------------------------------------------------------------


async def test_a_test_alert_takes_the_way_of_all(tmp_path: Path) -> None:
    """Each target is told, whatever its least severity is; the book has no state of it."""
    clock = LeapingClock()
    async with watched_alerts(tmp_path, clock) as box:
        found = await _while_sent(box, TestAlertRequest(), OutboxState.SENT)
        assert (found.exit, found.message) == (0, "2 of 2 targets have the test alert")
        assert found.details["targets"] == [
            {"target": "phone", "state": "sent", "text": "said"},
            {"target": "mail", "state": "sent", "text": "said"},
        ]
        (row, _) = await box.store.outbox()
        assert (row.transition.rule, row.transition.severity) == (AlertRule.TEST, Severity.CRITICAL)
        assert "ana" in row.transition.fact
        assert box.book.states == {}


async def test_a_test_alert_for_one_target_goes_to_that_alone(tmp_path: Path) -> None:
    """The status is 1 when the target refuses it."""
    async with watched_alerts(tmp_path, LeapingClock()) as box:
        found = await _while_sent(box, TestAlertRequest("mail"), OutboxState.DEAD)
        assert (found.exit, found.message) == (1, "0 of 1 targets have the test alert")
        assert [row.target for row in await box.store.outbox()] == ["mail"]


async def test_a_test_alert_that_is_not_sent_is_told_as_waiting(tmp_path: Path) -> None:
    """After half a minute the command has its answer; the row goes on."""
    async with watched_alerts(tmp_path, LeapingClock()) as box:
        began_s = box.clock.monotonic_s()
        found = await box.verbs.answer(TestAlertRequest("phone"), "ana")
        assert 30 <= box.clock.monotonic_s() - began_s < 60
        assert (found.exit, found.message) == (1, "0 of 1 targets have the test alert")
        assert found.details["targets"] == [{"target": "phone", "state": "queued", "text": ""}]


async def test_a_test_alert_needs_a_target(tmp_path: Path) -> None:
    """Without one, and with a wrong name, the next command is told."""
    async with watched_alerts(tmp_path) as box:
        with pytest.raises(NotFoundError, match='no target "phon": appliance target ls'):
            await box.verbs.answer(TestAlertRequest("phon"), "ana")
        box.targets = ()
        with pytest.raises(PreconditionError, match="appliance target add"):
            await box.verbs.answer(TestAlertRequest(), "ana")


async def _while_sent(
    box: WatchedAlerts, request: TestAlertRequest, state: OutboxState
) -> ResultEvent:
    """Return the answer, while a sender settles what is queued."""
    asked = asyncio.create_task(box.verbs.answer(request, "ana"))
    while not asked.done():
        await box.settle(state, "said")
    return asked.result()
