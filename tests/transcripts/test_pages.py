"""Commands of README, tutorial and how-tos, without a box: each is understood, and names what exists.

`make check-docs` plays them.
"""

import re
import shlex
from pathlib import Path

import pytest

from tests.transcripts.box_shell import Ran
from tests.transcripts.command_check import ROOT, faults, parse_faults
from tests.transcripts.masks import difference, is_printed, masked, renewed
from tests.transcripts.page_blocks import (
    MarkKind,
    PageError,
    page_of,
    read_page,
)
from tests.transcripts.page_blocks import faults as mark_faults
from tests.transcripts.playing import PAGES, Played
from tests.transcripts.renewal import renewed_text
from tests.transcripts.scenes import SCENES

by_name = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
HERE = Path("page.md")


@by_name
def test_marks_have_reasons_and_are_about_commands(path: Path) -> None:
    """A page can be read; what is not played has its reason, and no mark is about nothing."""
    assert mark_faults(read_page(path)) == []


@by_name
def test_commands_are_understood_and_name_what_exists(path: Path) -> None:
    """Verbs, options, targets of make, units, fields of the journal and files of the checkout exist."""
    page = read_page(path)
    assert [f"{step.line}: {fault}" for step in page.steps for fault in faults(step.command)] == []


@by_name
def test_a_page_that_is_played_has_a_scene(path: Path) -> None:
    """The state of the box at the beginning of a page is known, so that pages can be played in any order."""
    page = read_page(path)
    if not list(page.steps) or page.mark(MarkKind.PAGE_NOT_PLAYED):
        return
    scene = page.mark(MarkKind.SCENE)
    assert scene is not None
    assert scene.text in SCENES


@by_name
def test_commands_stand_in_fenced_blocks(path: Path) -> None:
    """A command in an indented block, or in a fence without a language, would not be played."""
    page = read_page(path)
    fenced = {n for b in page.blocks for n in range(b.line, b.line + len(b.lines) + 2)}
    outside = [
        f"{number}: {line}"
        for number, line in enumerate(page.text.splitlines(), 1)
        if number not in fenced
        and line.startswith("    ")
        and line.strip().startswith("appliance ")
    ]
    bare = [
        f"{block.line}: {line}"
        for block in page.blocks
        if block.language not in {"sh", "console"}
        for line in block.lines
        if line.startswith(("appliance ", "$ ", "# appliance ", "sudo "))
    ]
    assert outside + bare == []


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("appliance swich smol", "swich"),
        ("sudo -u ana appliance status --bogus", "--bogus"),
        ("TOKEN=$(date) appliance mark smol loud && true", "loud"),
        ("make bench-nothing", "no such target"),
        ("scripts/install.sh --no-such", "no such option"),
        ("systemctl restart appliance-nothing", "no such unit"),
        ("journalctl APPLIANCE_NOTHING=1", "no such field"),
        ("journalctl APPLIANCE_EVENT=nothing", "no such event"),
        ("cp docs/nothing.md /tmp/", "no such file"),
        ("cp /usr/local/share/appliance/profiles/nothing.toml .", "no such file"),
        ("python -m tests.nothing", "no such module"),
        ("echo 'open", "not a shell command"),
    ],
)
def test_a_command_that_is_wrong_is_found(command: str, fault: str) -> None:
    """Each kind of check fails for a command that it is about."""
    assert fault in "\n".join(faults(command))


@pytest.mark.parametrize(
    "command",
    [
        "appliance status --json | jq -r .verdict.state   # a comment",
        "appliance switch smol --dry-run >/dev/null 2>&1",
        "cat >x <<'END'\nappliance nonsense 'open\nEND",
        "journalctl APPLIANCE_EVENT=profile-crashed --since -7d",
        "systemctl kill -s KILL appliance-backend-smol",
        "appliance run -- python3 train.py --bogus",
    ],
)
def test_a_command_that_is_right_is_accepted(command: str) -> None:
    """Pipes, redirections, comments, here-documents and other programs' options are no fault."""
    assert faults(command) == []


PAGE = """\
# Page

<!-- scene: demo -->
<!-- not played `make`: it takes long here -->
<!-- typed `cat`: hello -->

```console
# cat
hello
$ printf '%s' \\
  x
x
# make
…
```

Text.

   ```sh
   a=1  # a comment
   # only a comment
   cat <<END
   text
   END
   ```
"""


def test_a_page_is_read_as_blocks_steps_and_marks() -> None:
    """Prompts begin commands, what follows is shown; continued lines and here-documents are one command."""
    page = page_of(HERE, PAGE)
    assert mark_faults(page) == []
    assert [(step.line, step.as_root, step.command, step.shown) for step in page.steps] == [
        (8, True, "cat", ("hello",)),
        (10, False, "printf '%s' \\\n  x", ("x",)),
        (13, True, "make", ("…",)),
        (20, True, "a=1  # a comment", None),
        (22, True, "cat <<END\ntext\nEND", None),
    ]
    cat, _, make, *_ = page.steps
    assert (typed := cat.mark(MarkKind.TYPED)) is not None
    assert typed.text == "hello"
    assert cat.mark(MarkKind.NOT_PLAYED) is None
    assert make.mark(MarkKind.NOT_PLAYED) is not None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("<!-- not played: no -->\n\n```sh\na\n```\n", "no reason"),
        ("<!-- not played `b`: for a good reason -->\n\n```sh\na\n```\n", "about no command"),
        ("<!-- other words: for a good reason -->\n\n```sh\na\n```\n", "no command"),
        ("<!-- ends with `a`: for a good reason -->\n\n```sh\na\n```\n", "number"),
    ],
)
def test_a_mark_that_says_nothing_is_a_fault(text: str, fault: str) -> None:
    """A mark without a reason, or about no command, fails."""
    assert fault in "\n".join(mark_faults(page_of(HERE, text)))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<!-- skip -->\n\n```sh\na\n```\n", "no mark: skip"),
        ("```sh\na 'b\n```\n", "the command has no end"),
        ("```sh\na\n", "the fence has no end"),
        ("```console\noutput\n```\n", "begins with a prompt"),
    ],
)
def test_a_page_that_cannot_be_read_is_refused(text: str, error: str) -> None:
    """An unknown mark, an open fence and an open command are errors, not skipped."""
    with pytest.raises(PageError, match=error):
        list(page_of(HERE, text).steps)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "demo · RAM 0.9 of 23.5 GiB · supervisor 0.1.0 up 23 s",
            "demo · RAM 12.0 of 2.5 GiB · supervisor 0.2.0 up 2 min",
        ),
        (" ✓ loading       loading      0.3 s", " ✓ loading    loading         1.4 s"),
        ("since Sat 10:13 (0 s)", "since Mon 09:01 (12 d)"),
        ("apl_1f3a9c2e_5b0c7d…", "apl_77d01b4c_" + "0" * 48),
        ("laptop  1f3a9c2e  2026-11-21", "laptop  77d01b4c  2027-01-01"),
        ("for ana (uid 1002, pid 219)", "for ana (uid 7, pid 3)"),
        ('{"operation":18,"kind"', '{"operation":2,"kind"'),
    ],
)
def test_figures_times_and_ids_are_equal(one: str, other: str) -> None:
    """Texts that differ from run to run are masked."""
    assert masked(one) == masked(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("smol is serving on :8031", "smol is serving on :8032"),
        ("ended with status 3", "ended with status 4"),
        ("2 profiles are applied", "3 profiles are applied"),
        ("serving on 127.0.0.1:8031", "serving on 0.0.0.0:8031"),
        ("    indented", "indented"),
    ],
)
def test_ports_statuses_counts_and_addresses_are_compared(one: str, other: str) -> None:
    """Texts that a reader goes by are not masked."""
    assert masked(one) != masked(other)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a", "…", "z"], ["a", "b", "c", "z"], True),
        (["a", "…", "z"], ["a", "z"], True),
        (["a", "…", "z"], ["a", "b"], False),
        (["…", "b", "…"], ["a", "b", "b", "c"], True),
        (["…"], [], True),
        ([], ["a"], False),
        (["a"], ["a", "a"], False),
        ([" ✓ starting 1.1 s", " ✓ loading loading 2 s", "z"], [" ✓ starting 0.1 s", "z"], True),
        (["a", "z"], ["a", " ✓ back: loading  loading: 3 MiB resident, 1 s  0.1 s", "z"], True),
        (["a", " ✗ loading bad did not start", "z"], ["a", "z"], False),
        (['{…"content":"The ocean…"…}'], ['{"x":1,"content":"The ocean is","y":2}'], True),
    ],
)
def test_an_ellipsis_stands_for_lines_or_for_a_part_of_one(
    shown: list[str],
    printed: list[str],
    same: bool,  # noqa: FBT001 - an expectation
) -> None:
    """A line of its own is any number of lines; in a line it is any text."""
    assert is_printed(shown, printed) is same


def test_a_long_output_is_compared_in_bounded_time() -> None:
    """Many ellipses over many lines: each pattern passes over the lines once."""
    lines = ["a"] * 2000
    assert is_printed(["…", "a"] * 50, lines)
    assert not is_printed([*["…", "a"] * 50, "b"], lines)


def test_a_difference_shows_both_sides() -> None:
    """Lines that are equal but for figures are no difference."""
    assert list(difference(["took 1.0 s", "old"], ["took 2.0 s", "new"])) == [
        "  took 1.0 s",
        "- old",
        "+ new",
    ]


def test_a_renewal_keeps_figures_elisions_and_secrets() -> None:
    """Only what differs changes; what the page left out stays left out, and no secret is written."""
    assert renewed(["took 1.0 s", "old"], ["took 2.0 s", "new"]) == ["took 1.0 s", "new"]
    assert renewed(["a", "…", "z"], ["b", "1", "2", "y"]) == ["b", "…", "y"]
    assert renewed([], [f"apl_77d01b4c_{'a1' * 24}"]) == ["apl_77d01b4c_a1a1a1…"]


def test_renewed_pages_show_what_was_printed() -> None:
    """The output of a step is replaced in its place, with the indentation of its block."""
    text = "```console\n# a\nold\n# b\n```\n\n   ```console\n   # c\n   ```\n"
    page = page_of(HERE, text)
    printed = (["new", "lines"], ["of b"], ["of c"])
    played = [
        Played(page=HERE, step=step, ran=Ran(status=0, lines=lines, seconds=0.0), is_compared=True)
        for step, lines in zip(page.steps, printed, strict=True)
    ]
    assert renewed_text(page, played) == (
        "```console\n# a\nnew\nlines\n# b\nof b\n```\n\n   ```console\n   # c\n   of c\n   ```\n"
    )
    assert all(list(one.faults()) for one in played)
    again = page_of(HERE, renewed_text(page, played))
    assert [step.shown for step in again.steps] == [tuple(lines) for lines in printed]


def test_a_status_that_the_page_does_not_promise_is_a_fault() -> None:
    """A command without shown output has to end with 0, or as its mark says."""
    text = "<!-- ends with 3 `b`: nothing serves here -->\n\n```sh\na\nb\n```\n"
    steps = list(page_of(HERE, text).steps)

    def told(number: int, status: int | None) -> str:
        ran = Ran(status=status, lines=["why"], seconds=0.0)
        return "\n".join(Played(page=HERE, step=steps[number], ran=ran, is_compared=True).faults())

    assert told(0, 0) == told(1, 3) == ""
    assert "ended with 1, not 0" in told(0, 1)
    assert "why" in told(0, 1)
    assert "ended with 0, not 3" in told(1, 0)
    assert "did not end" in told(0, None)


def test_commands_in_sentences_are_understood() -> None:
    """`appliance …` in the text of a page parses; words in capitals are names that a reader puts there."""
    found = []
    for path in PAGES:
        for command in inline_commands(path.read_text("utf-8")):
            found += [f"{path.relative_to(ROOT)}: {fault}" for fault in parse_faults(command)]
    assert found == []


def inline_commands(text: str) -> list[list[str]]:
    """Return the arguments of each command line of the appliance that stands in a sentence."""
    prose = re.sub(r"^ *```.*?^ *```|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    codes = re.findall(r"`(?:sudo )?appliance ([^`…|]+)`", prose)
    return [shlex.split(re.sub(r"[\[\]]", "", code)) for code in codes]
