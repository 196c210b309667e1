"""Parser of every command line, with help, completion and errors that say what to type next.

Importing and building it takes 2 ms, so it is used for what `appliance.cli.arguments` cannot read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Never

from appliance import __version__
from appliance.cli.grammar import PROGRAM, SOCKET_HELP, VERBS, ArgumentValueError, VerbGrammar
from appliance.cli.terminal import standard_streams
from appliance.cli.untranslated import argparse
from appliance.model.wording import closest
from appliance.wire.control import Exit

Completer = Callable[..., Iterable[str]]
"""Function that argcomplete calls with keyword arguments while the shell asks."""


class _Formatter(argparse.HelpFormatter):
    """Formatter that finds the width by itself: argparse imports shutil for it."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=standard_streams().out.width() - 2)


class Parser(argparse.ArgumentParser):
    """Parser whose errors say what to type next."""

    names: Completer | None = None
    """Completer of the names of profiles."""
    examples: Completer | None = None
    """Completer of the names of examples."""

    def error(self, message: str) -> Never:
        """End with the usage status and a hint."""
        standard_streams().err.line(f"{message}: {self.prog} --help")
        self.exit(Exit.USAGE)

    def parse_known_args(  # type: ignore[override]  # one signature for three overloads
        self, args: Sequence[str] | None = None, namespace: object = None
    ) -> tuple[Any, list[str]]:
        """Parse, once every option is known: argparse would first report what is missing."""
        for word in self._options_among(args or ()):
            if not self._is_known(word):
                meant = closest(word, self._option_string_actions)
                hint = f'; did you mean "{meant}"?' if meant else ""
                self.error(f'unknown option "{word}"{hint}')
        return super().parse_known_args(args, namespace)

    def _options_among(self, words: Iterable[str]) -> Iterator[str]:
        """Yield the words that this parser reads as options, at least those before the first other word."""
        is_left_to_others = any(
            action.nargs in {argparse.PARSER, argparse.REMAINDER} for action in self._actions
        )
        for word in words:
            if word == "--" or (is_left_to_others and not word.startswith("-")):
                return
            # argparse reads words with a space, and a lone dash, as values.
            if word.startswith("-") and word != "-" and " " not in word:
                yield word

    def _is_known(self, word: str) -> bool:
        known = self._option_string_actions
        is_number = self._negative_number_matcher.match(word) is not None
        is_short = not word.startswith("--") and word[:2] in known
        return word.partition("=")[0] in known or is_short or is_number

    def complete_names(self, action: argparse.Action) -> None:
        """Let the shell complete this argument with names of profiles."""
        if self.names is not None:
            action.completer = self.names  # type: ignore[attr-defined]  # argcomplete's protocol

    def complete_examples(self, action: argparse.Action) -> None:
        """Let the shell complete this argument with names of examples."""
        if self.examples is not None:
            action.completer = self.examples  # type: ignore[attr-defined]  # argcomplete's protocol

    def _get_value(self, action: argparse.Action, arg_string: str) -> object:
        try:
            return super()._get_value(action, arg_string)
        except ArgumentValueError as error:
            raise argparse.ArgumentError(action, str(error)) from error

    def _check_value(self, action: argparse.Action, value: object) -> None:
        # The base class lists every choice; one similar word is more helpful.
        choices = [str(choice) for choice in action.choices or ()]
        if action.choices is None or value in choices:
            return
        meant = closest(str(value), choices)
        what = action.metavar if isinstance(action.metavar, str) else action.dest
        hint = f'did you mean "{meant}"?' if meant else f"one of {', '.join(choices)}"
        raise argparse.ArgumentError(None, f'"{value}" is no {what.lower()}; {hint}')


def build_parser(
    argv: Sequence[str] = (), names: Completer | None = None, examples: Completer | None = None
) -> Parser:
    """Return the parser of the grammar.

    Args:
        argv: The arguments to parse. Where they begin with a verb, only that one's arguments are
            built: all of them take 10 ms.
        names: Completes profile names for a shell.
        examples: Completes names of examples.
    """
    parser = Parser(
        prog=PROGRAM,
        description="Local language models as systemd units, with one owner of the box's GPUs.",
        epilog="appliance VERB --help describes one verb.",
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"{PROGRAM} {__version__}", help="print the version"
    )
    parser.add_argument("--socket", metavar="PATH", default=None, help=SOCKET_HELP)
    verbs = parser.add_subparsers(
        # Set by hand, so that argparse does not format a usage line to find the name.
        prog=PROGRAM,
        dest="verb",
        metavar="VERB",
        required=True,
        title="verbs",
        parser_class=Parser,
    )
    wanted = [v for v in VERBS if argv and argv[0] in (v.name, *v.aliases)]
    for verb in wanted or VERBS:
        _add(verbs, verb, names, examples)
    return parser


def _add(
    verbs: "argparse._SubParsersAction[Parser]",
    verb: VerbGrammar,
    names: Completer | None,
    examples: Completer | None,
) -> None:
    parser = verbs.add_parser(
        verb.name,
        aliases=list(verb.aliases),
        help=verb.help,
        description=f"{verb.help[0].upper()}{verb.help[1:]}.",
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    parser.names, parser.examples = names, examples
    parser.set_defaults(**verb.defaults())
    # Suppressed, so that this value does not hide the one given before the verb.
    verb.add_arguments(parser, no_socket=argparse.SUPPRESS)
