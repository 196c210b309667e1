"""Build of an engine: its version, the options that its program has, and spellings that differ between builds.

Engines rename options from one build to the next. A unit's command holds every spelling, the newest first::

    llama-server --model M +either --load-mode mmap+mlock +or --mlock +end --port 8021

At each start the wrapper takes the first that the program has (`spelled`); of a build that is not
known, the first. A spelling without words always fits: it leaves the option out. One spelling alone
is an option that a build must have, with that value.

The wrapper imports this before starts: without `dataclasses` and `typing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


HELP_QUESTION = "help"
"""Question that runs the program with ``--help`` and ``--version``."""
DISTRIBUTION_QUESTION = "distribution"


def distribution_question(package: str, *modules: str) -> str:
    """Return the question that runs nothing, and reads the files of an engine that is a Python package.

    Args:
        package: Name of the package as the directory of its metadata has it.
        modules: Modules that declare options, as paths below the directory of packages; one that ends
            with a slash is a folder of such modules.
    """
    return ":".join((DISTRIBUTION_QUESTION, package, *modules))


class EngineBuild:
    """Answer of an engine's program about itself."""

    __slots__ = ("asked_unix_s", "is_complete", "options", "problem", "removed", "version")

    def __init__(
        self,
        *,
        version: str = "",
        options: Mapping[str, tuple[str, ...] | None] | None = None,
        removed: Mapping[str, str] | None = None,
        is_complete: bool = True,
        problem: str = "",
        asked_unix_s: float = 0.0,
    ) -> None:
        self.version = version
        """Version as the program writes it; empty: not told."""
        self.options = options or {}
        """Values that each option takes, where the program lists them; empty: any value; None: the
        option stands alone. Empty altogether: not told."""
        self.removed = removed or {}
        """Options that the program names only to refuse them, each with what it says instead."""
        self.is_complete = is_complete
        """Whether the program refuses every option that is not listed; False: the list was read in
        the program's sources, and may lack some."""
        self.problem = problem
        """Reason why the program told nothing, as a phrase; empty: it told."""
        self.asked_unix_s = asked_unix_s

    def has(self, option: str, value: str = "") -> bool | None:
        """Tell whether the build has an option, and takes a value for it; None: not known.

        Args:
            option: With its dashes, in any spelling that the engine takes for it.
            value: One value, or several with commas between them; empty: any.
        """
        if not self.options:
            return None
        name = canonical(option)
        if name not in self.options:
            return False
        known = self.options[name]
        return not known or not value or all(one in known for one in value.split(","))


def canonical(word: str) -> str:
    """Return the name of the option in a word: ``--a_b`` and ``--a-b=c`` are ``--a-b``."""
    name = word.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def is_option(word: str) -> bool:
    """Tell whether a word of a command is an option: negative numbers are values."""
    return word.startswith("-") and word[1:2] not in set("0123456789.") | {""}


EITHER = "+either"
OR = "+or"
END = "+end"
MARKERS = frozenset({EITHER, OR, END})
"""Words that mark spellings; no argument of a profile may be one."""


class Lack:
    """Option, or value of one, that a command gives and a build does not have."""

    __slots__ = ("option", "value")

    def __init__(self, option: str, value: str = "") -> None:
        self.option = option
        self.value = value
        """Value that the option does not take; empty: the option is missing."""


def either(*spellings: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command that hold `spellings`, the newest first."""
    words: list[str] = []
    for spelling in spellings:
        words += (OR if words else EITHER, *spelling)
    return (*words, END)


def spelled(words: Sequence[str], build: EngineBuild | None) -> tuple[str, ...]:
    """Return a command as `build` reads it; None: a build that is not known."""
    found: list[str] = []
    for part in _parts(words):
        fitting = None if build is None else part.fitting(build)
        found += part.spellings[0] if fitting is None else fitting
    return tuple(found)


def lacks(words: Sequence[str], build: EngineBuild) -> tuple[Lack, ...]:
    """Return what a command gives and `build` does not have, each once; none where it does not tell."""
    found: dict[tuple[str, str], Lack] = {}
    for part in _parts(_engine_words(words)):
        if part.fitting(build) is None:
            for lack in part.lacking(part.spellings[0], build):
                found.setdefault((lack.option, lack.value), lack)
    return tuple(found.values())


def _engine_words(words: Sequence[str]) -> Sequence[str]:
    """Return a command without the interpreter's own option, as in ``python -m engine --port 1``."""
    program, option = (*words[:2], "", "")[:2]
    is_module = option == "-m" and program.rpartition("/")[2].startswith("python")
    return words[2:] if is_module else words


class _CommandPart:
    """Part of a command: plain words, or the spellings of an option."""

    __slots__ = ("is_choice", "spellings")

    def __init__(self, *, is_choice: bool) -> None:
        self.is_choice = is_choice
        self.spellings: list[list[str]] = [[]]

    def fitting(self, build: EngineBuild) -> list[str] | None:
        """Return the first spelling of which the build has everything; None: no such spelling."""
        fit = (one for one in self.spellings if next(self.lacking(one, build), None) is None)
        return next(fit, None)

    def lacking(self, words: Sequence[str], build: EngineBuild) -> Iterator[Lack]:
        """Yield what the build lacks of one spelling.

        Values are checked in spellings alone: an engine may take further ones than it lists.
        """
        for option, value in _options(words, build):
            if build.has(option) is False:
                yield Lack(option)
            elif self.is_choice and build.has(option, value) is False:
                yield Lack(option, value)


def _parts(words: Iterable[str]) -> Iterator[_CommandPart]:
    part = _CommandPart(is_choice=False)
    for word in words:
        if word == EITHER and not part.is_choice:
            yield part
            part = _CommandPart(is_choice=True)
        elif word == OR and part.is_choice:
            part.spellings.append([])
        elif word == END and part.is_choice:
            yield part
            part = _CommandPart(is_choice=False)
        else:
            part.spellings[-1].append(word)
    yield part


def _options(words: Sequence[str], build: EngineBuild) -> Iterator[tuple[str, str]]:
    """Yield the options among words, each with its value.

    The value may begin with a dash as well, where it is known that the option takes one.
    """
    is_value = False
    for place, word in enumerate(words):
        if is_value or not is_option(word):
            is_value = False
            continue
        option, value = canonical(word), word.partition("=")[2]
        if not value and build.options.get(option) is not None:
            following = words[place + 1] if place + 1 < len(words) else ""
            is_value = build.is_complete or not is_option(following)
            value = following if is_value else ""
        yield option, value
