"""Questions to the health agent that verbs about measurements share."""

from __future__ import annotations

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of
from appliance.cli.failures import CliError
from appliance.model.wording import joined
from appliance.wire.client import Conversation, ask
from appliance.wire.control import Exit
from appliance.wire.conversation import ResultEvent
from appliance.wire.health_socket import HEALTH, SpeedsRequest
from appliance.wire.json_values import Json, number_in, object_in

TYPE_CHECKING = False
if TYPE_CHECKING:
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
