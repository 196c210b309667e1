"""Verb `appliance completion`."""

from argcomplete.shell_integration import shellcode

from appliance.cli.arguments import Arguments
from appliance.cli.grammar import PROGRAM
from appliance.cli.terminal import Streams
from appliance.protocol.control import Exit


def run(arguments: Arguments, streams: Streams) -> int:
    """Print the script that makes a shell complete our command lines."""
    streams.out.line(shellcode([PROGRAM], shell=arguments.shell))
    return int(Exit.OK)
