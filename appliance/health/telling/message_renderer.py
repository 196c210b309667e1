"""Renderer of messages: makes the text of a delivery at the moment in which it is sent."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from appliance.alerts.messages.alert_message import Rendering, joint_message, message
from appliance.alerts.messages.box_messages import BoxWords
from appliance.alerts.sending.outbox import Delivery, DeliveryForm
from appliance.health.clock import HealthClock
from appliance.model.alerts import Message, MessageAction, Transition

MakeButtons = Callable[[Transition, float], Awaitable[tuple[MessageAction, ...]]]
"""Function that makes the buttons of a message about a transition, at a time."""


class MessageRenderer:
    """Renderer of deliveries.

    Args:
        words: Name of this machine, and its clock.
        buttons: Makes buttons.
        click_url: Address that a tap on a message opens; empty: none.
        clock: Of the box.
    """

    def __init__(
        self, words: BoxWords, buttons: MakeButtons, click_url: str, clock: HealthClock
    ) -> None:
        self._words = words
        self._buttons = buttons
        self._click_url = click_url
        self._clock = clock

    async def render(self, delivery: Delivery) -> Message:
        """Return the message of a delivery."""
        now_s = self._clock.unix_s()
        rendering = Rendering(
            host=self._words.host,
            now_unix_s=now_s,
            clock=self._words.clock,
            click_url=self._click_url,
            due_unix_s=min(row.due_unix_s for row in delivery.rows),
        )
        if delivery.form is not DeliveryForm.SINGLE:
            return joint_message(
                delivery.transitions,
                rendering,
                joined_id=delivery.joined_id,
                is_late=delivery.form is DeliveryForm.SUMMARY,
            )
        transition = delivery.transitions[-1]
        actions = await self._buttons(transition, now_s)
        return message(transition, replace(rendering, actions=actions))
