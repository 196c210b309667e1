"""Renderer of messages: one change or several, local times, and buttons that work once."""

import secrets
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.alerts.action_tokens import TOKEN_S
from appliance.alerts.box_messages import BoxWords
from appliance.alerts.outbox import OutboxRow
from appliance.alerts.outbox_plan import Delivery, DeliveryForm
from appliance.health.message_renderer import MessageButtons, MessageRenderer
from appliance.model.alerts import (
    AlertRule,
    MessageAction,
    Severity,
    Subject,
    SubjectKind,
    Transition,
    TransitionKind,
)
from appliance.model.errors import PermissionDeniedError
from appliance.wire.alert_requests import ActRequest
from tests.fakes.alert_samples import AEON, transition
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.watched_alerts import LeapingClock, WatchedAlerts, watched_alerts

ACK = MessageAction(label="Ack", url="http://garage.example/act/1")


def row(number: int, unix_s: float, not_before_unix_s: float = 0.0) -> OutboxRow:
    transition = Transition(
        unix_s=unix_s,
        kind=TransitionKind.FIRED,
        alert=f"A{number}",
        subject=Subject(kind=SubjectKind.PROFILE, name="genesis"),
        rule=AlertRule.SLOW,
        episode=number,
        severity=Severity.WARNING,
        fact="slow",
    )
    return OutboxRow(
        id=number,
        key=str(number),
        target="phone",
        transition=transition,
        created_unix_s=unix_s,
        not_before_unix_s=not_before_unix_s,
    )


def renderer(clock: VirtualHealthClock) -> MessageRenderer:
    async def buttons(_transition: Transition, _now_unix_s: float) -> tuple[MessageAction, ...]:
        return (ACK,)

    words = BoxWords(host="garage", clock=lambda unix_s: f"{unix_s - clock.unix_s():.0f}")
    return MessageRenderer(words, buttons, "http://garage.example", clock)


@pytest.mark.virtual_time
async def test_a_single_change_has_its_buttons_and_its_lateness() -> None:
    """Time for which a message was held on purpose is no delay."""
    clock = VirtualHealthClock()
    now_s = clock.unix_s()
    late = Delivery(form=DeliveryForm.SINGLE, target="phone", rows=(row(1, now_s - 600),))
    shown = await renderer(clock).render(late)
    assert shown.title == "▼ genesis slow #A1"
    assert "delayed 10 min" in shown.body
    assert shown.actions == (ACK,)
    assert shown.click_url == "http://garage.example"
    held = Delivery(form=DeliveryForm.SINGLE, target="phone", rows=(row(1, now_s - 600, now_s),))
    assert "delayed" not in (await renderer(clock).render(held)).body


@pytest.mark.virtual_time
@pytest.mark.parametrize("form", [DeliveryForm.DIGEST, DeliveryForm.SUMMARY])
async def test_several_changes_are_one_message(form: DeliveryForm) -> None:
    """A summary says since when nothing could be sent."""
    clock = VirtualHealthClock()
    now_s = clock.unix_s()
    rows = (row(1, now_s - 900), row(2, now_s - 600))
    shown = await renderer(clock).render(Delivery(form=form, target="phone", rows=rows))
    assert shown.title == "▼ garage: 2 alerts, 2 not over"
    assert shown.sequence_id == f"garage-{form}-1"
    assert ("Nothing could be sent since -900." in shown.body) is (form is DeliveryForm.SUMMARY)


URL = "https://box.example/"
REFUSED = "the button was used, is older than a day, or is none of this box"


def buttons_of(box: WatchedAlerts, url: str = URL) -> MessageButtons:
    return MessageButtons(url, box.store, secrets.token_bytes)


def token_in(action: MessageAction) -> str:
    return action.url.removeprefix("https://box.example/api/v1/act/")


def _files(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def refused(box: WatchedAlerts, token: str) -> bool:
    with pytest.raises(PermissionDeniedError, match=REFUSED):
        await box.verbs.answer(ActRequest(token), "web")
    return True


async def test_each_button_works_once(tmp_path: Path) -> None:
    """Ack acks, Silence silences for two hours, and a second press is refused."""
    async with watched_alerts(tmp_path) as box:
        await box.tell(transition())
        found = await buttons_of(box).buttons(transition(), box.clock.unix_s())
        assert [action.label for action in found] == ["Ack", "Silence 2 h"]
        ack, silence = map(token_in, found)
        assert "acked" in (await box.verbs.answer(ActRequest(ack), "web")).message
        (state,) = box.book.states.values()
        assert state.acked_by == "a button"
        answer = await box.verbs.answer(ActRequest(silence), "web")
        assert answer.message == "nobody is told of genesis for 2 h"
        assert await refused(box, ack)
        assert await refused(box, silence)


async def test_no_listener_no_buttons(tmp_path: Path) -> None:
    """While no address is declared, messages have none, and no token is made."""
    async with watched_alerts(tmp_path) as box:
        assert await buttons_of(box, "").buttons(transition(), box.clock.unix_s()) == ()
    with sqlite3.connect(tmp_path / "alerts.sqlite") as db:
        assert db.execute("SELECT count(*) FROM tokens").fetchone() == (0,)
    db.close()


@pytest.mark.parametrize(
    ("kind", "rule", "count"),
    [
        (TransitionKind.FIRED, AlertRule.SLOW, 2),
        (TransitionKind.REMINDED, AlertRule.SLOW, 2),
        (TransitionKind.CHANGED, AlertRule.SLOW, 2),
        (TransitionKind.FLAPPING, AlertRule.SLOW, 2),
        (TransitionKind.RESOLVED, AlertRule.SLOW, 0),
        (TransitionKind.CANCELLED, AlertRule.SLOW, 0),
        (TransitionKind.FIRED, AlertRule.TEST, 0),
    ],
)
async def test_only_what_goes_on_has_buttons(
    tmp_path: Path, kind: TransitionKind, rule: AlertRule, count: int
) -> None:
    """An alert that is over, and a test, have nothing to ack."""
    async with watched_alerts(tmp_path) as box:
        one = transition(kind, rule=rule, severity=Severity.WARNING)
        assert len(await buttons_of(box).buttons(one, box.clock.unix_s())) == count


async def test_the_secret_is_kept_nowhere(tmp_path: Path) -> None:
    """Neither the database nor its log has the token, only its digest."""
    async with watched_alerts(tmp_path) as box:
        (action, _) = await buttons_of(box).buttons(transition(), box.clock.unix_s())
    secret = token_in(action).rpartition(".")[2].encode()
    with sqlite3.connect(tmp_path / "alerts.sqlite") as db:
        (kept,) = db.execute("SELECT count(*) FROM tokens").fetchone()
    db.close()
    assert kept == 2
    assert not any(secret in file.read_bytes() for file in _files(tmp_path))


async def test_a_token_expires(tmp_path: Path) -> None:
    """A day after the message its buttons do nothing."""
    clock = LeapingClock()
    async with watched_alerts(tmp_path, clock) as box:
        await box.tell(transition())
        ack, silence = await buttons_of(box).buttons(transition(), clock.unix_s())
        clock.leapt_s = TOKEN_S - 1
        await box.verbs.answer(ActRequest(token_in(ack)), "web")
        clock.leapt_s = TOKEN_S + 1
        assert await refused(box, token_in(silence))


async def test_a_token_is_of_one_episode(tmp_path: Path) -> None:
    """When the alert is over, or another one by now, the button changes nothing."""
    async with watched_alerts(tmp_path) as box:
        await box.tell(transition())
        found = await buttons_of(box).buttons(transition(), box.clock.unix_s())
        await box.tell(transition(TransitionKind.RESOLVED))
        answer = await box.verbs.answer(ActRequest(token_in(found[0])), "web")
        assert answer.message == "Agenesis1 is over"
        await box.tell(transition(episode=2, alert="Agenesis1"))
        await box.verbs.answer(ActRequest(token_in(found[1])), "web")
        assert box.book.silences == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_replayed_foreign_and_altered_tokens_are_refused(
    tmp_path: Path, data: st.DataObject
) -> None:
    """Only the token itself is taken, and that once, however it is changed."""
    async with watched_alerts(tmp_path) as box, watched_alerts(tmp_path / "other") as other:
        await box.tell(transition(), transition(subject=AEON))
        now_unix_s = box.clock.unix_s()
        genesis = [token_in(a) for a in await buttons_of(box).buttons(transition(), now_unix_s)]
        foreign = [token_in(a) for a in await buttons_of(other).buttons(transition(), now_unix_s)]
        token = data.draw(st.sampled_from(genesis))
        at = data.draw(st.integers(0, len(token) - 1))
        letter = data.draw(st.characters(codec="ascii", categories=["L", "N", "P"]))
        parts = token.split(".")
        swapped = [
            ".".join(["Aaeon1", *parts[1:]]),
            ".".join([parts[0], "2", *parts[2:]]),
            ".".join([*parts[:2], "silence" if parts[2] == "ack" else "ack", parts[3]]),
        ]
        altered = token[:at] + letter + token[at + 1 :]
        bad = [
            *foreign,
            *swapped,
            token[:-1],
            token + "x",
            *([altered] if altered != token else []),
        ]
        for text in bad:
            assert await refused(box, text)
        await box.verbs.answer(ActRequest(token), "web")
        assert await refused(box, token)
