"""Verb `appliance completion`, and the profile names that a shell completes."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from argcomplete.shell_integration import shellcode

from appliance.cli.arguments import Arguments
from appliance.cli.box import catalogue_of
from appliance.cli.grammar import PROGRAM
from appliance.cli.paths import find_places, watch_names
from appliance.cli.terminal import Streams
from appliance.model.errors import ApplianceError
from appliance.model.paths import COMMAND_SCRIPT, PREFIX
from appliance.system.commitment import FileCommitment
from appliance.wire.control import Exit

_OF_WATCHES: Final = frozenset({"mark", "alerts", "events", "window"})
"""Verbs whose names may also be those of ``[[watch]]`` entries."""


def run(arguments: Arguments, streams: Streams) -> int:
    """Print the script that makes a shell complete our command lines.

    It asks the installed program. Left alone, argcomplete's would run what was typed, also a file of this
    name in the present directory.
    """
    program = f"{PREFIX}/{COMMAND_SCRIPT}"
    streams.out.line(shellcode([PROGRAM], shell=arguments.shell, argcomplete_script=program))
    return int(Exit.OK)


def profile_names(prefix: str, *, parsed_args: object = None, **_: object) -> Iterable[str]:
    """Return the profiles that begin with `prefix`: applied ones, for `uncommit` the committed ones.

    Verbs that take watches have these, too. Files that cannot be read have none.
    """
    verb = getattr(parsed_args, "verb", "")
    names: list[str] = []
    with contextlib.suppress(ApplianceError):
        if verb == "uncommit":
            names += FileCommitment(Path(find_places().state_dir)).committed()
        else:
            names += catalogue_of(find_places())
    if verb in _OF_WATCHES:
        with contextlib.suppress(ApplianceError):
            names += watch_names()
    return tuple(name for name in names if name.startswith(prefix))


def examples(prefix: str, **_: object) -> Iterable[str]:
    """Return the examples that begin with `prefix`."""
    # Imported late: names of profiles, which are completed more often, need none of it.
    from appliance.system.profile_files.example_library import example_names  # noqa: PLC0415

    return tuple(name for name in example_names() if name.startswith(prefix))
