"""`appliance completion`."""

from argparse import Namespace

from argcomplete.shell_integration import shellcode

from appliance.domain.protocol import Exit
from appliance.surfaces.cli.grammar import PROGRAM
from appliance.surfaces.cli.terminal import Streams


def run(arguments: Namespace, streams: Streams) -> int:
    """Print the script that makes a shell complete our command lines."""
    streams.out.line(shellcode([PROGRAM], shell=arguments.shell))
    return int(Exit.OK)
