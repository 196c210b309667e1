"""Arguments of a command line; those in the usual form are read without argparse, 2 ms sooner.

The usual form is ``VERB`` with complete options, each once, and its names beside each other. Anything
else (help, ``--option=value``, a mistake) is left to `appliance.cli.argument_parser`, which has the
same grammar. A test compares the two readers.
"""

from __future__ import annotations

from appliance.cli.grammar import VERBS, ArgumentValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


class Arguments:
    """Values of one command line, by the names that the grammar gives them."""

    def __init__(self, **values: object) -> None:
        vars(self).update(values)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def read_usual(words: Sequence[str]) -> Arguments | None:
    """Return the arguments of a command line in the usual form; None: another form."""
    verb = next((v for v in VERBS if words and words[0] in (v.name, *v.aliases)), None)
    if verb is None:
        return None
    reader = _Reader(verb.defaults())
    verb.add_arguments(reader, no_socket=None)
    try:
        values = reader.read(words[1:])
    except (_UnusualError, ArgumentValueError):
        return None
    return Arguments(verb=words[0], **values)


class _UnusualError(Exception):
    """Words that are not in the usual form."""


class _Reader:
    """Reader for the words after one verb, with the methods that the grammar calls.

    Args:
        defaults: Values that hold where the words say nothing else.
    """

    def __init__(self, defaults: dict[str, object]) -> None:
        self._values = dict(defaults)
        self._options: dict[str, dict[str, Any]] = {}
        self._positionals: list[dict[str, Any]] = []

    def add_argument(self, *flags: str, **options: Any) -> None:
        """Add an option or a positional, described as for argparse."""
        argument = {"group": flags, **options}
        if flags[0].startswith("-"):
            long = next((flag for flag in flags if flag.startswith("--")), flags[0])
            argument.setdefault("dest", long.lstrip("-").replace("-", "_"))
            self._options.update(dict.fromkeys(flags, argument))
        else:
            argument["dest"] = flags[0]
            self._positionals.append(argument)
        if "default" in options:
            self._values[argument["dest"]] = options["default"]
        else:
            missing = False if options.get("action") == "store_true" else None
            self._values.setdefault(argument["dest"], missing)

    def add_mutually_exclusive_group(self) -> _Group:
        """Return a receiver for options of which at most one may be given."""
        return _Group(self)

    def complete_names(self, action: None) -> None:
        """Ignore the completion, which concerns shells only."""

    def complete_examples(self, action: None) -> None:
        """Ignore the completion, which concerns shells only."""

    def read(self, words: Sequence[str]) -> dict[str, object]:
        """Return every value by its name.

        Raises:
            _UnusualError: argparse must read these words.
            ArgumentValueError: a value is wrong.
        """
        given: set[object] = set()
        names: list[str] = []
        names_ended = False
        rest = iter(words)
        for word in rest:
            option = self._options.get(word)
            if option is not None:
                if option["group"] in given:
                    raise _UnusualError
                given.add(option["group"])
                self._values[option["dest"]] = _option_value(option, rest)
                names_ended = bool(names)
            elif names_ended or word.startswith("-"):
                raise _UnusualError
            else:
                names.append(word)
        self._place(names)
        return self._values

    def _place(self, names: list[str]) -> None:
        """Assign the names to the positionals, in their order."""
        for behind, positional in zip(
            range(len(self._positionals) - 1, -1, -1), self._positionals, strict=True
        ):
            match positional.get("nargs"):
                case None | "?" if names:
                    self._values[positional["dest"]] = _checked(positional, names.pop(0))
                case "*":
                    self._values[positional["dest"]] = [_checked(positional, n) for n in names]
                    names = []
                case "+" if len(names) > behind:
                    taken = len(names) - behind  # behind it each takes one word
                    self._values[positional["dest"]] = [
                        _checked(positional, n) for n in names[:taken]
                    ]
                    names = names[taken:]
                case "?":
                    pass
                case _:
                    raise _UnusualError
        if names:
            raise _UnusualError


def _option_value(option: dict[str, Any], rest: Iterator[str]) -> object:
    """Return the value of an option; it may be the first of the words that follow."""
    match option.get("action"):
        case "store_true":
            return True
        case "store_const":
            return option["const"]
        case None:
            word = next(rest, "-")
            if word.startswith("-"):
                raise _UnusualError
            return _checked(option, word)
        case _:
            raise _UnusualError


def _checked(argument: dict[str, Any], word: str) -> object:
    value = argument["type"](word) if "type" in argument else word
    if value not in argument.get("choices", (value,)):
        raise _UnusualError
    return value


class _Group:
    """Options of a reader that exclude each other."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def add_argument(self, *flags: str, **options: Any) -> None:
        self._reader.add_argument(*flags, **options, group=self)
