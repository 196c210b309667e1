"""Verb `appliance version`."""

from typing import NotRequired, TypedDict

import appliance
from appliance import __version__
from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of
from appliance.cli.terminal import Streams
from appliance.model.errors import ApplianceError
from appliance.model.paths import build_of
from appliance.wire.client import ask
from appliance.wire.control import Exit
from appliance.wire.control_requests import CONTROL, StatusRequest
from appliance.wire.conversation import PROTOCOL_MAX, PROTOCOL_MIN
from appliance.wire.json_values import object_in, text_in


class ProtocolVersions(TypedDict):
    """Versions of the control protocol that the command knows."""

    min: int
    max: int


class VersionDocument(TypedDict):
    """Versions of the command and of the supervisor."""

    version: str
    build: NotRequired[str | None]
    """Identifier by which two builds of one version differ; None: the command runs from a checkout."""
    protocol: ProtocolVersions
    supervisor: str | None
    """None: it does not answer."""


def run(arguments: Arguments, streams: Streams) -> int:
    """Print our version, and the supervisor's where it answers."""
    supervisor = _supervisor_version(places_of(arguments).control_socket)
    build = build_of(appliance.__file__)
    if arguments.json:
        document: VersionDocument = {
            "version": __version__,
            "build": build,
            "protocol": {"min": PROTOCOL_MIN, "max": PROTOCOL_MAX},
            "supervisor": supervisor,
        }
        streams.out.document(document)
    else:
        what = "not installed" if build is None else f"build {build}"
        streams.out.line(f"appliance {__version__} ({what})")
        streams.out.line(f"supervisor {supervisor or 'does not answer'}")
    return int(Exit.OK)


def _supervisor_version(socket: str) -> str | None:
    try:
        result = ask(CONTROL, socket, StatusRequest())
    except ApplianceError:
        return None
    return text_in(object_in(result.details, "status"), "version") or None
