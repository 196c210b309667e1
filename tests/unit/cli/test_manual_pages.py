"""Manual pages: one for each verb, with all of its options, and in a form that groff accepts."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from appliance.cli.grammar import VERBS
from appliance.cli.grammar_reference import EXIT_MEANINGS, arguments_of, parsers_of_verbs
from appliance.cli.manual_pages import escaped, main, manual_pages
from appliance.wire.control import Exit

PAGES = manual_pages()
REQUESTS = {".TH", ".SH", ".TP", ".PP", ".B", ".BR", ".I", ".nh", ".ad", ".so", '.\\"'}
FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
LONG_PAGES = sorted(name for name, text in PAGES.items() if not text.startswith(".so"))
needs_groff = pytest.mark.skipif(
    shutil.which("groff") is None, reason="no groff here: that it accepts the pages is not shown"
)


def plain(page: str) -> str:
    return page.replace("\\-", "-").replace("\\&", "")


def test_each_verb_and_alias_has_a_page() -> None:
    """The set of pages is that of the verbs; an alias refers to the page of its verb."""
    names = [name for verb in VERBS for name in (verb.name, *verb.aliases)]
    assert sorted(PAGES) == sorted(["appliance.1", *(f"appliance-{n}.1" for n in names)])
    assert PAGES["appliance-ls.1"] == ".so man1/appliance-list.1\n"


@pytest.mark.parametrize(("verb", "parser"), [(v, p) for v, p, _ in parsers_of_verbs()])
def test_a_page_tells_every_argument(verb: str, parser: object) -> None:
    """Each flag, value and help text of the grammar is in the verb's page, and no other flag."""
    page = plain(PAGES[f"appliance-{verb}.1"])
    arguments = arguments_of(parser)  # type: ignore[arg-type]  # Parser, whose import is heavy
    for action in arguments:
        for flag in action.option_strings:
            assert flag in page
        assert action.help is not None
        assert action.help[1:].replace("\n", " ") in page
    options = page.partition(".SH OPTIONS")[2].partition(".SH EXIT")[0]
    heads = [line for line in options.splitlines() if line.startswith(".B ")]
    flags = {flag for line in heads for flag in FLAG.findall(line)}
    known = {flag for action in arguments for flag in action.option_strings}
    assert flags == {*known, "--json", "--socket", "--help", "-h"}


@pytest.mark.parametrize("name", LONG_PAGES)
def test_a_page_has_known_requests_alone(name: str) -> None:
    """Lines are requests that we use, or text that is none; all is ASCII, so no locale matters."""
    assert PAGES[name].isascii()
    for line in PAGES[name].splitlines():
        assert line.strip()
        if line.startswith((".", "'")):
            assert line.split()[0] in REQUESTS, line
    sections = re.findall(r"^\.SH (.+)$", PAGES[name], re.MULTILINE)
    assert sections[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"]
    assert sections[-4:] == ["EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".so /etc/shadow", r"\&.so /etc/shadow"),
        ("'br", r"\&'br"),
        (r"a\fBb", r"a\efBb"),
        ("--json", r"\-\-json"),
        ("a. b'c", "a. b'c"),
    ],
)
def test_text_is_never_a_request(text: str, expected: str) -> None:
    """A help text with a dot, a quote or a backslash is shown as it is."""
    assert escaped(text) == expected


def test_every_exit_status_of_the_code_is_told() -> None:
    """The table has each status that the command ends with."""
    statuses = {int(value) for name, value in vars(Exit).items() if name.isupper()}
    assert len(statuses) > 5
    assert statuses <= EXIT_MEANINGS.keys()


@needs_groff
def test_groff_formats_all_pages_without_a_warning(tmp_path: Path) -> None:
    """Pages are written as install.sh has them written: groff has nothing to say, and shows an option as typed."""
    (tmp_path / "man1").mkdir()
    assert main([str(tmp_path / "man1")]) == 0
    files = [f"man1/{name}" for name in LONG_PAGES]
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-P-c", *files],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stderr == ""
    text = re.sub(".\x08", "", done.stdout)  # a bold letter is struck twice
    assert "appliance switch NAME... [--dry-run] [--no-wait] [--no-rollback]" in text
