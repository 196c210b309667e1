"""The quick reader of command lines: it reads the usual ones, and as argparse does."""

import contextlib
import io
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.cli.argument_parser import Parser, build_parser
from appliance.cli.arguments import Arguments, read_usual
from appliance.cli.grammar import VERBS

VALUES = ("a", "b", "live", "add", "show", "bash", "serving", "30s", "0,1", "7", "a,b", "")
ODD = ("--", "-", "-1", "--help", "--jso", "--json=1", "--socket=/s", "-fn", "--none", "-- x")


def words_of(verb: str) -> st.SearchStrategy[list[str]]:
    """Command lines that begin with `verb`."""
    usual = [*flags(verb), *VALUES]
    return st.lists(st.sampled_from(usual * 4 + list(ODD)), max_size=5).map(lambda w: [verb, *w])


@cache
def parser_of(verb: str) -> Parser:
    return build_parser([verb])


def flags(verb: str) -> list[str]:
    (choices,) = (a.choices for a in parser_of(verb)._actions if a.dest == "verb")
    assert isinstance(choices, dict)
    return [flag for action in choices[verb]._actions for flag in action.option_strings]


def by_argparse(words: Sequence[str]) -> Arguments | None:
    """The arguments; None: argparse ended with help or a usage error."""
    parser = parser_of(words[0])
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            return parser.parse_args(words, Arguments())
        except SystemExit:
            return None


@given(st.sampled_from([n for v in VERBS for n in (v.name, *v.aliases)]).flatmap(words_of))
@example(["start", "a", "--json", "b"])
@example(["switch", "a", "--drain", "3s", "--now"])
@example(["run", "a", "--json"])
def test_the_readers_agree(words: list[str]) -> None:
    """Command lines in the usual form mean the same to argparse; mistakes go to argparse."""
    usual = read_usual(words)
    if usual is not None:
        full = by_argparse(words)
        assert full is not None
        assert vars(usual) == vars(full)


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "status a --json --watch",
        "ls --all --mark live",
        "switch a --timeout 30s --now --json",
        "switch a b --no-wait",
        "switch --no-wait --socket /s a",
        "start a b --timeout 1m",
        "stop",
        "hold --for 30m --drain 5s",
        "mark a live",
        "mark a b live",
        "logs a -f -n 7",
        "key add ana --may-switch --profiles a,b",
        "profile validate a b",
    ],
)
def test_usual_command_lines_need_no_argparse(command: str) -> None:
    """Names beside each other and complete options are read without argparse."""
    assert read_usual(command.split()) is not None


@pytest.mark.parametrize(
    "command",
    [
        "",
        "--help",
        "swich a",
        "switch",
        "switch a --now b",
        "mark live",
        "mark a alive",
        "run -- a",
        "start a --now",
    ],
)
def test_other_command_lines_are_left_to_argparse(command: str) -> None:
    """Help, mistakes and commands to run are not read."""
    assert read_usual(command.split()) is None
