"""Renderer of messages: one change, or several, at the moment in which they are sent."""

import pytest

from appliance.alerts.messages.box_messages import BoxWords
from appliance.alerts.sending.outbox import Delivery, DeliveryForm
from appliance.alerts.sending.outbox_rows import OutboxRow
from appliance.health.telling.message_renderer import MessageRenderer
from appliance.model.alerts import (
    AlertRule,
    MessageAction,
    Severity,
    Subject,
    SubjectKind,
    Transition,
    TransitionKind,
)
from tests.fakes.health_clock import VirtualHealthClock

pytestmark = pytest.mark.virtual_time

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
