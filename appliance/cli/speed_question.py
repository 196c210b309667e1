"""Question to the health agent for speeds and alerts, in the time that the supervisor's answer takes.

The agent answers from its memory. A status waits for it no longer than `_WITHIN_S` in all, and is the
same without it apart from the lines about speed and alerts.
"""

from __future__ import annotations

import time

from appliance.model.errors import ApplianceError, PermissionDeniedError
from appliance.presentation.health_sections import alert_section, speed_section, without_speeds
from appliance.wire.client import Conversation
from appliance.wire.conversation import RequestRefusedError, ResultEvent
from appliance.wire.health_socket import HEALTH, SpeedsRequest
from appliance.wire.json_values import Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from appliance.status.document import AlertSection, SpeedSection
    from appliance.wire.health_socket import HealthEvent

_WITHIN_S: Final = 0.15
"""A tenth of what people call at once; the agent takes 1 ms, with a busy processor some 20."""
_NOT_KNOWN: Final = "speed not known: systemctl status appliance-health"


class SpeedQuestion:
    """Question that is sent at once, and whose answer is read later.

    Args:
        path: The health agent's socket.
        within_s: Time for the answer, from now on.
    """

    def __init__(self, path: str, *, within_s: float = _WITHIN_S) -> None:
        self._until_s = time.monotonic() + within_s
        self._note = _NOT_KNOWN
        self.alerts: AlertSection | None = None
        """Alerts as the answer has them; None: not known, or not read."""
        self._conversation = None
        try:
            self._conversation = Conversation(HEALTH, path, SpeedsRequest(), greeting_s=None)
        except PermissionDeniedError as error:
            self._note = f"speed not known: {error}"
        except ApplianceError:
            pass

    def answer(self) -> SpeedSection:
        """Return the speeds, or why they are not known, within the time that is left."""
        details = None if self._conversation is None else self._details(self._conversation)
        if details is None:
            return without_speeds(self._note)
        self.alerts = alert_section(details)
        return speed_section(details)

    def _details(self, conversation: Conversation[HealthEvent]) -> Json | None:
        """Return the details of the result; None: none came in time."""
        with conversation:
            try:
                conversation.greet(self._left_s())
                event = conversation.next_event(self._left_s())
            except RequestRefusedError as error:
                self._note = f"speed not known: {error}"
                return None
            except ApplianceError:
                return None
        return event.details if isinstance(event, ResultEvent) else None

    def _left_s(self) -> float:
        return self._until_s - time.monotonic()
