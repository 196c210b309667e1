"""Build of an engine: its version and the options that its program has, as the program tells.

Engines rename options from one build to the next. The wrapper imports this before starts: without
`dataclasses` and `typing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

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
