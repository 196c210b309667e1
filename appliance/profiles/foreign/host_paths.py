"""Paths of a configuration as the host has them: of a container, relative, or below a home."""

import posixpath
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from appliance.profiles.foreign.container_settings import host_path
from appliance.profiles.foreign.server_command import Argument, ServerCommand

_MOST_CHARACTERS: Final = 4096


class HostPaths:
    """Paths as seen from the host, for one command.

    Args:
        command: The command; its container's mounts and its directory count.
        home_of: Returns the home of a user, "" for the caller's; None: there is no such user.
    """

    def __init__(self, command: ServerCommand, home_of: Callable[[str], str | None]) -> None:
        self._mounts = command.mounts
        self._is_inside = bool(command.image)
        self._directory = command.directory
        self._user = command.user
        self._home_of = home_of

    def located(self, word: Argument) -> Argument:
        """Return a word that is a path, absolute where that can be told, with a note if it changed."""
        path = word.text
        if not path.startswith("/"):
            return self._at(word, path, path)
        if not self._is_inside:
            return word
        there, note = host_path(path, self._mounts)
        if there is None:
            reason = f"{note}: copy it to the host, and name it there"
            return replace(word, is_known=False, note=reason)
        return self._at(word, there, note)

    def _at(self, word: Argument, there: str, was: str) -> Argument:
        absolute = self._absolute(there)
        if absolute is None:
            return replace(
                word, is_known=False, note=f"{there} is relative to an unknown directory"
            )
        notes = filter(None, [word.note, f"was {was}"])
        return replace(word, text=absolute, note="; ".join(notes))

    def _absolute(self, path: str) -> str | None:
        if path.startswith("~"):
            user, _, rest = path[1:].partition("/")
            home = self._home_of(user or self._user)
            return None if home is None else _joined(home, rest)
        if path.startswith("/"):
            return _joined("/", path)
        if self._directory is None or self._is_inside:
            return None
        base = self._directory
        directory = self._absolute(base) if base.startswith("~") else base
        return None if directory is None else _joined(directory, path)


def _joined(directory: str, path: str) -> str | None:
    whole = posixpath.normpath(posixpath.join(directory, path))
    return whole if len(whole) <= _MOST_CHARACTERS else None
