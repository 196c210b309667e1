"""Commands that are run in this process: a tenth of the time that a process of their own takes."""

import io
from dataclasses import dataclass, field

from appliance.cli.argument_parser import build_parser
from appliance.cli.arguments import Arguments
from appliance.cli.failures import status_of
from appliance.cli.main import _verb
from appliance.cli.terminal import Streams, Terminal
from appliance.model.errors import ApplianceError
from tests.fakes.cli_box import Ended


@dataclass(slots=True)
class Screen:
    """Streams of a command, as text."""

    out: io.StringIO = field(default_factory=io.StringIO)
    err: io.StringIO = field(default_factory=io.StringIO)

    def streams(self, *, interactive: bool = False) -> Streams:
        """Return the streams that a verb writes to."""
        return Streams(
            out=Terminal(stream=self.out), err=Terminal(stream=self.err, interactive=interactive)
        )


def call(*words: str, interactive: bool = False) -> Ended:
    """Run one command line, and end as `appliance.cli.main` would."""
    screen = Screen()
    arguments = build_parser(words).parse_args(words, Arguments())
    try:
        status = _verb(arguments.runs)(arguments, screen.streams(interactive=interactive))
    except ApplianceError as error:
        status = status_of(error)
        screen.err.write(f"{error}\n")
    return Ended(status=status, out=screen.out.getvalue(), err=screen.err.getvalue())


class Keyboard(io.StringIO):
    """Standard input of a person at a terminal, who has typed a text."""

    def isatty(self) -> bool:
        return True
