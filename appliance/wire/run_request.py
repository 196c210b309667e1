"""Request of a caller to run a command, unproven: bounded, and every type checked."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EX_NOT_EXECUTABLE = 126
EX_NOT_FOUND = 127
"""Exit statuses of shells and env(1) for a command that cannot be executed, or does not exist."""

_MAX_GPU = 255
_MAX_UMASK = 0o777
_MAX_SHOWN = 32


class BadRequest(Exception):  # noqa: N818
    """Request that cannot be accepted; `str()` is one sentence."""


class Request:
    """Command, and the surroundings that it is to have."""

    __slots__ = ("argv", "cwd", "env", "gpus", "token", "umask", "what")

    def __init__(self, document: Any) -> None:
        """Check the types of everything. Raises `BadRequest`."""
        if not isinstance(document, dict):
            raise BadRequest("the request is not a JSON object")
        self.argv = _words(document.get("argv"))
        self.env = _environment(document.get("env"))
        self.cwd = text_of(document.get("cwd"), "cwd")
        if not self.cwd.startswith("/"):
            raise BadRequest("cwd is not an absolute path")
        self.gpus = gpus_of(document.get("gpus"))
        self.umask = whole_of(document.get("umask"), "umask", _MAX_UMASK)
        self.token = text_of(document.get("token"), "token")
        """Token of the supervisor, see `appliance.wire.run_ticket`."""
        self.what = _shown(self.argv[0])
        """Name of the command for people. Arguments may hold secrets, and are never shown."""

    def leases(self) -> tuple[str, ...]:
        """Return the claim as `appliance.launch.leases.parse` reads it."""
        if self.gpus is None:
            return ("gpu-all:exclusive",)
        if not self.gpus:
            return ("cpu:exclusive",)
        return ("gpu-all:shared", *(f"gpu-{n}:exclusive" for n in self.gpus))

    def environment(self) -> dict[str, str]:
        """Return the caller's own variables, changed so that only the claimed GPUs are visible."""
        if self.gpus is None:
            return self.env
        shown = ",".join(map(str, self.gpus))
        claim = {"CUDA_VISIBLE_DEVICES": shown, "HIP_VISIBLE_DEVICES": shown}
        # The order of the indexes that people and the driver's own tools use.
        return {**self.env, **claim, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def text_of(value: object, what: str) -> str:
    """Return a text that can be given to a program. Raises `BadRequest`."""
    if not isinstance(value, str) or "\0" in value:
        raise BadRequest(f"{what} is no text")
    try:
        os.fsencode(value)
    except UnicodeEncodeError as error:
        raise BadRequest(f"{what} is no text") from error
    return value


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise BadRequest("argv is no list of words")
    words = tuple(text_of(word, "argv") for word in value)
    if not words[0]:
        raise BadRequest("argv names no command")
    return words


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadRequest("env is no object")
    for name, text in value.items():
        text_of(text, "env")
        if not text_of(name, "env") or "=" in name:
            raise BadRequest("env has a variable without a name")
    return value


def gpus_of(value: object) -> tuple[int, ...] | None:
    """Return the indexes, sorted; None: all. Raises `BadRequest`."""
    if value == "all":
        return None
    if not isinstance(value, list):
        raise BadRequest('gpus is neither "all" nor a list of indexes')
    return tuple(sorted({whole_of(n, "gpus", _MAX_GPU) for n in value}))


def whole_of(value: object, what: str, most: int) -> int:
    """Return a whole number from 0 on. Raises `BadRequest`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise BadRequest(f"{what} is no number from 0 to {most}")
    return value


def _shown(path: str) -> str:
    name = path.rpartition("/")[2][:_MAX_SHOWN]
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in name) or "a command"
