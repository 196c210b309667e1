"""Questions to the health agent: those that verbs share, and that of a status, which waits for no answer."""

from __future__ import annotations

import time

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of
from appliance.cli.failures import CliError
from appliance.model.errors import ApplianceError, PermissionDeniedError
from appliance.model.wording import joined
from appliance.presentation.health_sections import alert_section, speed_section, without_speeds
from appliance.wire.client import Conversation, ask
from appliance.wire.control import Exit
from appliance.wire.conversation import RequestRefusedError, ResultEvent
from appliance.wire.health_socket import HEALTH, SpeedsRequest
from appliance.wire.json_values import Json, number_in, object_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from appliance.model.status import AlertSection, SpeedSection
    from appliance.wire.health_socket import HealthEvent, HealthRequest


def result_of(arguments: Arguments, request: HealthRequest) -> ResultEvent:
    """Return the agent's answer to a request; raises as `appliance.wire.client.ask` does."""
    return ask(HEALTH, _socket(arguments), request)


def details_of(arguments: Arguments, request: HealthRequest) -> Json:
    """Return the fields that a verb promises. Raises as `result_of`."""
    return result_of(arguments, request).details


def talk(arguments: Arguments, request: HealthRequest) -> Conversation[HealthEvent]:
    """Begin a conversation. Raises as `result_of`."""
    return Conversation(HEALTH, _socket(arguments), request)


def measured_profile(arguments: Arguments, *, changes: bool = False) -> str:
    """Return the profile of the command line, else the one that was measured last.

    Args:
        arguments: Of the command line.
        changes: Whether the verb changes something: then no profile is chosen among several.

    Raises:
        CliError: none is measured, or none may be chosen.
    """
    if arguments.name is not None:
        return str(arguments.name)
    reports = object_in(details_of(arguments, SpeedsRequest()), "profiles")
    names = sorted(reports, key=lambda name: (_last_probe(reports, name), name))
    if not names:
        verb = arguments.verb
        raise CliError(f"no profile is measured now: appliance {verb} --help", Exit.FAILED)
    if changes and len(names) > 1:
        raise CliError(f"{joined(sorted(names))} are measured: name one of them", Exit.USAGE)
    return names[-1]


def _last_probe(reports: Json, name: str) -> float:
    return number_in(object_in(reports, name), "last_probe_unix_s") or 0.0


def _socket(arguments: Arguments) -> str:
    return places_of(arguments).health_socket


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
