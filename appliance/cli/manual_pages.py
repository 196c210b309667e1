"""Generator of the manual pages from the grammar: ``python -m appliance.cli.manual_pages DIRECTORY``.

`scripts/install.sh` runs it, so the pages are those of the installed release: appliance(1), a page for each
verb, such as appliance-switch(1), and one that refers to it for each alias. The form is that of
groff_man(7), in ASCII.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from appliance import __version__
from appliance.cli.argument_parser import Parser
from appliance.cli.grammar import PROGRAM, VERBS
from appliance.cli.grammar_reference import (
    EXIT_MEANINGS,
    argument_usage,
    arguments_of,
    parsers_of_verbs,
    shown_argument,
)
from appliance.cli.untranslated import argparse
from appliance.model import paths

_SUFFIX: Final = ".1"
_DOCS: Final = "/usr/local/share/appliance/docs"
_WHAT_IT_IS: Final = (
    "The appliance serves local language models on one box as ordinary systemd units, and sees to it that"
    " one of them at a time owns the GPUs. The command asks its daemons over sockets; whatever it starts"
    " goes on when it ends."
)
_OUTPUT: Final = (
    "What a command found goes to standard output, progress and errors to standard error. With --json"
    " standard output has JSON alone. Durations are written as 30s, 10m or 1h30m."
)
_FILES: Final[Mapping[str, str]] = {
    f"{paths.PROFILES_DIR}/NAME.toml": "a profile: one model, and how to serve it",
    paths.SETTINGS_FILE: "the settings",
    paths.TARGETS_FILE: "who is told of alerts; for root alone",
    paths.STATE_DIR: "operations, marks, and what a boot starts",
    paths.CONTROL_SOCKET: "the supervisor's control socket",
    _DOCS: "the documentation",
}
_VARIABLES: Final[Mapping[str, str]] = {
    "NO_COLOR": "when set, no colours",
    "APPLIANCE_CONTROL_SOCKET": "path of the control socket",
    "APPLIANCE_SETTINGS": "path of the settings",
}
_OTHERS: Final = ("journalctl(1)", "systemctl(1)")


def manual_pages() -> dict[str, str]:
    """Return the text of every page by its file's name."""
    parsers = {verb: (parser, text) for verb, parser, text in parsers_of_verbs()}
    pages = {f"{PROGRAM}{_SUFFIX}": "".join(f"{line}\n" for line in _program_page())}
    for verb in VERBS:
        parser, text = parsers[verb.name]
        lines = _verb_page(verb.name, parser, text, verb.aliases)
        pages[_file(verb.name)] = "".join(f"{line}\n" for line in lines)
        for alias in verb.aliases:
            pages[_file(alias)] = f".so man1/{_file(verb.name)}\n"
    return pages


def escaped(text: str) -> str:
    """Return text as it is written in a page: no character of it is a request or an escape."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe


def _file(verb: str) -> str:
    return f"{_page(verb)}{_SUFFIX}"


def _page(verb: str) -> str:
    return f"{PROGRAM}-{verb}"


def _program_page() -> Iterator[str]:
    yield from _head(PROGRAM, "serve local language models, with one owner of the GPUs")
    yield ".SH SYNOPSIS"
    yield f".B {PROGRAM}"
    yield "[\\fB\\-\\-socket\\fR \\fIPATH\\fR] \\fIVERB\\fR [\\fIARGUMENT\\fR ...]"
    yield ".SH DESCRIPTION"
    yield escaped(_WHAT_IT_IS)
    yield ".PP"
    yield escaped(_OUTPUT)
    yield ".SH VERBS"
    for verb in VERBS:
        yield ".TP"
        yield f".BR {escaped(_page(verb.name))} (1)"
        yield escaped(_sentence(verb.help))
    yield from _tail(f"{_page(verb.name)}(1)" for verb in VERBS)


def _verb_page(verb: str, parser: Parser, text: str, aliases: Iterable[str]) -> Iterator[str]:
    arguments = list(parser._actions)  # noqa: SLF001 - argparse has no public way to walk
    names = ", ".join([_page(verb), *map(_page, aliases)])
    yield from _head(names, text)
    yield ".SH SYNOPSIS"
    yield f".B {PROGRAM} {escaped(verb)}"
    usage = " ".join(argument_usage(one) for one in arguments_of(parser))
    if usage:
        yield escaped(usage)
    yield ".SH DESCRIPTION"
    yield escaped(_sentence(text))
    for heading, group in (
        ("ARGUMENTS", [one for one in arguments if not one.option_strings]),
        ("OPTIONS", [one for one in arguments if one.option_strings]),
    ):
        if group:
            yield f".SH {heading}"
            yield from _described(group)
    yield from _tail([f"{PROGRAM}(1)"])


def _described(arguments: Iterable[argparse.Action]) -> Iterator[str]:
    for action in arguments:
        yield ".TP"
        yield f".B {escaped(shown_argument(action))}"
        is_silent = action.help is None or action.help == argparse.SUPPRESS
        yield escaped("" if is_silent else _sentence(str(action.help)))


def _head(names: str, text: str) -> Iterator[str]:
    title = names.partition(",")[0].upper()
    yield '.\\" Generated from the grammar of the command line.'
    yield f'.TH {escaped(title)} 1 "" "{PROGRAM} {__version__}" "The appliance"'
    yield ".nh"  # an option is not broken at its hyphens
    yield ".ad l"
    yield ".SH NAME"
    yield f"{escaped(names)} \\- {escaped(text)}"


def _tail(related: Iterable[str]) -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for status, meaning in EXIT_MEANINGS.items():
        yield ".TP"
        yield f".B {status}"
        yield escaped(_sentence(meaning.replace("`", "")))
    for heading, rows in (("ENVIRONMENT", _VARIABLES), ("FILES", _FILES)):
        yield f".SH {heading}"
        for name, meaning in rows.items():
            yield ".TP"
            yield f".I {escaped(name)}"
            yield escaped(_sentence(meaning))
    yield ".SH SEE ALSO"
    pages = [page.removesuffix("(1)") for page in (*related, *_OTHERS)]
    for number, page in enumerate(pages):
        comma = "," if number < len(pages) - 1 else ""
        yield f".BR {escaped(page)} (1){comma}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def main(argv: list[str]) -> int:
    """Write all pages into a directory."""
    directory = Path(argv[0])
    for name, text in manual_pages().items():
        (directory / name).write_text(text, "ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
