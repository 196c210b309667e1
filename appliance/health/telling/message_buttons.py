"""Buttons of messages: an address for each action, with a token that works once."""

from collections.abc import Callable
from typing import Final

from appliance.alerts.messages.action_tokens import (
    SECRET_BYTES,
    ButtonAction,
    issue_token,
)
from appliance.model.alerts import AlertRule, MessageAction, Transition, TransitionKind
from appliance.system.sqlite.alert_store import AlertStore

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
