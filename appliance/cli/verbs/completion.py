"""Verb `appliance completion`, and the profile names that a shell completes."""

from collections.abc import Iterable

from argcomplete.shell_integration import shellcode

from appliance.cli.arguments import Arguments
from appliance.cli.catalogue import catalogue_of
from appliance.cli.grammar import PROGRAM
from appliance.cli.paths import find_places
from appliance.cli.terminal import Streams
from appliance.domain.errors import ApplianceError
from appliance.protocol.control import Exit


def run(arguments: Arguments, streams: Streams) -> int:
    """Print the script that makes a shell complete our command lines."""
    streams.out.line(shellcode([PROGRAM], shell=arguments.shell))
    return int(Exit.OK)


def profile_names(prefix: str, **_: object) -> Iterable[str]:
    """Return the applied profiles that begin with `prefix`; none when the manifest cannot be read."""
    try:
        catalogue = catalogue_of(find_places())
    except ApplianceError:
        return ()
    return tuple(name for name in catalogue if name.startswith(prefix))
