"""Reader of shell scripts and command lines: which commands they would run, and with what values.

Assignments count in the order of the file, whatever branch they are in; the body of a function counts
where it stands. Nothing is run.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from appliance.profiles.foreign.server_command import (
    Argument,
    DispositionKind,
    ImportFaultError,
    ServerCommand,
    setting,
)
from appliance.profiles.foreign.shell_syntax import SimpleCommand, Word
from appliance.profiles.foreign.shell_variables import Variables
from appliance.profiles.foreign.shell_words import EXPORTING, KEYWORDS, commands_of

_MOST_EXPORTED: Final = 256
_MOST_DIRECTORY: Final = 4096
_NO_COMMANDS: Final = frozenset({"for", "case", "esac", "fi", "done", "in", "function", "select"})
_LATER: Final = {
    "|": "its output goes to a pipe: the unit's goes to the journal",
    "|&": "its output goes to a pipe: the unit's goes to the journal",
    "&": "it runs in the background: the unit does that",
}


def read_script(text: str, base: ServerCommand) -> Iterator[ServerCommand]:
    """Yield the commands in a shell text, each with the variables that are exported to it.

    Args:
        text: A script, or a command line of any length.
        base: What surrounds them: variables, mounts, a directory.

    Raises:
        ImportFaultError: the text is too long, nests too deep, or a quote is not closed.
    """
    script = _Script(base)
    for command in commands_of(text):
        yield from script.read(command)


class _Script:
    def __init__(self, base: ServerCommand) -> None:
        self._base = base
        self._variables = Variables(base.environment)
        self._exported = dict.fromkeys(base.environment)
        self._directory = base.directory

    def read(self, command: SimpleCommand) -> Iterator[ServerCommand]:
        words = _without_keywords(command.words)
        name = words[0].plain() if words else ""
        if not words or name in EXPORTING:
            for assignment in command.assignments:
                self._variables.assign(assignment)
            if words and name != "local":
                self._export(command, words)
        elif name == "cd" and len(words) > 1:
            self._change_directory(words[-1])
        elif name not in _NO_COMMANDS:
            yield self._command(command, words)

    def _export(self, command: SimpleCommand, words: tuple[Word, ...]) -> None:
        named = [argument.text for argument in self._variables.expand(words[1:])]
        named += [assignment.name for assignment in command.assignments]
        self._exported |= dict.fromkeys(name for name in named if not name.startswith("-"))
        if len(self._exported) > _MOST_EXPORTED:
            raise ImportFaultError(f"exports more than {_MOST_EXPORTED} variables")

    def _change_directory(self, word: Word) -> None:
        target = self._variables.joined(word)
        if not target.is_known or len(self._directory or "") > _MOST_DIRECTORY:
            self._directory = None
        elif target.text.startswith(("/", "~")):
            self._directory = target.text
        elif self._directory is not None:
            self._directory = f"{self._directory}/{target.text}"

    def _command(self, command: SimpleCommand, words: tuple[Word, ...]) -> ServerCommand:
        before: dict[str, Argument] = {}
        for assignment in command.assignments:
            if isinstance(assignment.value, Word):
                before[assignment.name] = self._variables.joined(assignment.value)
        left_out = [
            setting(redirection, DispositionKind.DROPPED, "the unit's output goes to the journal")
            for redirection in command.redirections
        ]
        if reason := _LATER.get(command.end):
            left_out.append(setting(command.end, DispositionKind.CHANGED, reason))
        return replace(
            self._base,
            origin=self._base.origin or f"line {command.line}",
            argv=tuple(self._variables.expand(words)),
            environment=self._variables.snapshot(self._exported) | before,
            directory=self._directory,
            dispositions=(*self._base.dispositions, *left_out),
        )


def _without_keywords(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the words of a command after ``if``, ``then`` and the like."""
    for place, word in enumerate(words):
        if not any(word.is_keyword(keyword) for keyword in KEYWORDS):
            return words[place:]
    return ()
