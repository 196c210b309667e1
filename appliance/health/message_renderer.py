"""Renderer of messages: text and buttons of a delivery at the moment in which it is sent."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from appliance.alerts.action_tokens import (
    SECRET_BYTES,
    ButtonAction,
    issue_token,
)
from appliance.alerts.box_messages import BoxWords
from appliance.alerts.messages import Rendering, joint_message, message
from appliance.alerts.outbox_plan import Delivery, DeliveryForm
from appliance.health.clock import HealthClock
from appliance.model.alerts import AlertRule, Message, MessageAction, Transition, TransitionKind
from appliance.system.sqlite.alert_store import AlertStore

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


ACT_PATH: Final = "/api/v1/act"
"""Path of the web process that takes tokens, below the declared address."""
_LABELS: Final = {ButtonAction.ACK: "Ack", ButtonAction.SILENCE: "Silence 2 h"}
_WITH_BUTTONS: Final = frozenset(
    {
        TransitionKind.FIRED,
        TransitionKind.CHANGED,
        TransitionKind.REMINDED,
        TransitionKind.FLAPPING,
    }
)


class MessageButtons:
    """Maker of buttons.

    Args:
        url: Address of this box that the phone reaches; empty: messages have no buttons.
        store: Keeps the digests of tokens.
        random_bytes: Returns so many random bytes, as `secrets.token_bytes`.
    """

    def __init__(self, url: str, store: AlertStore, random_bytes: Callable[[int], bytes]) -> None:
        self._url = url.rstrip("/")
        self._store = store
        self._random_bytes = random_bytes

    async def buttons(self, transition: Transition, now_unix_s: float) -> tuple[MessageAction, ...]:
        """Return the buttons of a message about a transition; none where there is nothing to do."""
        is_open = transition.kind in _WITH_BUTTONS and transition.rule is not AlertRule.TEST
        if not self._url or not is_open:
            return ()
        found = []
        for action, label in _LABELS.items():
            secret = self._random_bytes(SECRET_BYTES)
            text, kept = issue_token(
                transition.alert, transition.episode, action, secret, now_unix_s
            )
            await self._store.add_token(kept.digest, kept.alert, kept.action, kept.expires_unix_s)
            found.append(MessageAction(label=label, url=f"{self._url}{ACT_PATH}/{text}"))
        return tuple(found)
