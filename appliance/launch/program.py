"""Program parts that all launch programs use: command line, exit status and log lines.

argparse costs 5 ms of import before every start of a model; these command lines are written
by `appliance apply`, not by people, and need no help text.
"""

from __future__ import annotations

import gc
import os
import sys

from appliance.model.plain_text import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import NoReturn

ERROR = 3
WARNING = 4
INFO = 6
"""Priorities of sd-daemon(3)."""
EX_USAGE = 64
"""Exit status of a wrong command line, as in sysexits.h."""


class UsageError(Exception):
    """Error in a command line; `str()` is one sentence."""


class Options:
    """Values of ``--flag VALUE`` (also ``--flag=VALUE``), repeatable, and the words after ``--``.

    Args:
        argv: Arguments without the program's name.
        known: Flags that exist, without dashes.
        switches: Flags that stand alone.

    Raises:
        UsageError: an unknown flag, a flag without a value, or a stray word.
    """

    def __init__(
        self, argv: Sequence[str], known: Iterable[str], switches: Iterable[str] = ()
    ) -> None:
        self._values: dict[str, list[str]] = {}
        self.rest: tuple[str, ...] = ()
        accepted, alone = frozenset(known), frozenset(switches)
        words = iter(argv)
        for word in words:
            if word == "--":
                self.rest = tuple(words)
                return
            flag, equals, value = word.removeprefix("--").partition("=")
            if word.startswith("--") and word[2:] in alone:
                self._values[flag] = [""]
                continue
            if not word.startswith("--") or flag not in accepted:
                raise UsageError(f"unknown argument: {word}")
            if not equals and (value := next(words, "--")) == "--":
                raise UsageError(f"--{flag} needs a value")
            self._values.setdefault(flag, []).append(value)

    def has(self, switch: str) -> bool:
        """Tell whether a flag that takes no value was given."""
        return switch in self._values

    def many(self, flag: str) -> tuple[str, ...]:
        """Return every value given, in order."""
        return tuple(self._values.get(flag, ()))

    def text(self, flag: str, default: str | None = None) -> str:
        """Return the last value given. Raises `UsageError` when there is none and no default."""
        value = self.optional(flag)
        if value is not None:
            return value
        if default is None:
            raise UsageError(f"--{flag} is missing")
        return default

    def optional(self, flag: str) -> str | None:
        """Return the last value given; None: not given."""
        values = self._values.get(flag)
        return values[-1] if values else None

    def whole(self, flag: str) -> int | None:
        """Return the last value as a whole number >= 0; None: not given."""
        value = self.optional(flag)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit()):
            raise UsageError(f"--{flag} is not a whole number: {value}")
        return int(value)

    def seconds(self, flag: str, default: float) -> float:
        """Return the last value as seconds >= 0, also fractions."""
        value = self.optional(flag)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0.0 <= number < float("inf"):
            raise UsageError(f"--{flag} is not a number of seconds: {value}")
        return number


def run_program(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a program on its command line; ends at once, without the interpreter's clean-up (2 ms)."""
    gc.enable()  # The start script turned the collector off for the imports.
    os._exit(main(sys.argv[1:]))


def say(priority: int, text: str) -> None:
    """Write `text` for the journal, line by line, to standard error with its priority."""
    lines = "".join(f"<{priority}>{plain(line)}\n" for line in text.splitlines())
    try:
        sys.stderr.write(lines)
        sys.stderr.flush()
    except OSError:
        return  # A missing journal must not prevent a start.
