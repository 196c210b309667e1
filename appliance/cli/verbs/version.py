"""Verb `appliance version`."""

from appliance import __version__
from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of
from appliance.cli.terminal import Streams
from appliance.domain.errors import ApplianceError
from appliance.protocol.control import PROTOCOL_MAX, PROTOCOL_MIN, Exit
from appliance.protocol.control_client import ask
from appliance.protocol.control_requests import StatusRequest
from appliance.protocol.json_values import object_in, text_in


def run(arguments: Arguments, streams: Streams) -> int:
    """Print our version, and the supervisor's where it answers."""
    supervisor = _supervisor_version(places_of(arguments).control_socket)
    if arguments.json:
        document = {
            "version": __version__,
            "protocol": {"min": PROTOCOL_MIN, "max": PROTOCOL_MAX},
            "supervisor": supervisor,
        }
        streams.out.document(document)
    else:
        streams.out.line(f"appliance {__version__}")
        streams.out.line(f"supervisor {supervisor or 'does not answer'}")
    return int(Exit.OK)


def _supervisor_version(socket: str) -> str | None:
    try:
        result = ask(socket, StatusRequest())
    except ApplianceError:
        return None
    return text_in(object_in(result.details, "status"), "version") or None
