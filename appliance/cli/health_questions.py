"""Questions to the health agent that verbs about measurements share."""

from __future__ import annotations

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of
from appliance.cli.failures import CliError
from appliance.planning.wording import joined
from appliance.protocol.control import Exit
from appliance.protocol.conversation.client import Conversation, ask
from appliance.protocol.conversation.codec import ResultEvent
from appliance.protocol.health_socket import HEALTH, SpeedsRequest
from appliance.protocol.json_values import Json, object_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from appliance.protocol.health_socket import HealthEvent, HealthRequest


def result_of(arguments: Arguments, request: HealthRequest) -> ResultEvent:
    """Return the agent's answer to a request; raises as `conversation.client.ask` does."""
    return ask(HEALTH, _socket(arguments), request)


def details_of(arguments: Arguments, request: HealthRequest) -> Json:
    """Return the fields that a verb promises. Raises as `result_of`."""
    return result_of(arguments, request).details


def talk(arguments: Arguments, request: HealthRequest) -> Conversation[HealthEvent]:
    """Begin a conversation. Raises as `result_of`."""
    return Conversation(HEALTH, _socket(arguments), request)


def measured_profile(arguments: Arguments) -> str:
    """Return the profile of the command line, else the only one that is measured.

    Raises:
        CliError: none is, or several are.
    """
    if arguments.name is not None:
        return str(arguments.name)
    names = sorted(object_in(details_of(arguments, SpeedsRequest()), "profiles"))
    if len(names) == 1:
        return names[0]
    verb = arguments.verb
    if names:
        which = f"{joined(names)} are measured"
        raise CliError(f"{which}: appliance {verb} {names[0]}", Exit.USAGE)
    raise CliError(f"no profile is measured now: appliance {verb} NAME", Exit.FAILED)


def _socket(arguments: Arguments) -> str:
    return places_of(arguments).health_socket
