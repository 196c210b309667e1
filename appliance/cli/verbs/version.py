"""`appliance version`."""

import json
from argparse import Namespace

from appliance import __version__
from appliance.cli.box import places_of
from appliance.cli.control_client import ask
from appliance.cli.failures import CliError
from appliance.cli.terminal import Streams
from appliance.protocol.control import PROTOCOL_MAX, PROTOCOL_MIN, Exit, Verb
from appliance.protocol.json_fields import object_in, text_in


def run(arguments: Namespace, streams: Streams) -> int:
    """Print our version, and the supervisor's where it answers."""
    supervisor = _supervisor_version(places_of(arguments).control_socket)
    if arguments.json:
        document = {
            "version": __version__,
            "protocol": {"min": PROTOCOL_MIN, "max": PROTOCOL_MAX},
            "supervisor": supervisor,
        }
        streams.out.line(json.dumps(document, indent=2))
    else:
        streams.out.line(f"appliance {__version__}")
        streams.out.line(f"supervisor {supervisor or 'does not answer'}")
    return int(Exit.OK)


def _supervisor_version(socket: str) -> str | None:
    try:
        closing = ask(socket, Verb.STATUS)
    except CliError:
        return None
    return text_in(object_in(closing, "status"), "version") or None
