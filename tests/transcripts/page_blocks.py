"""Fenced blocks of a documentation page, their commands, and the marks above them.

A mark is an HTML comment, which no reader sees. It belongs to the next block, or to the commands of that
block which begin with the code in it:

=================================  ================================================================
``scene: NAME``                    state of the box in which the page is played
``page not played: REASON``        no command of the page is run
``not played [`COMMAND`]: REASON``  the block, or these commands of it, are not run
``other words `COMMAND`: REASON``  they are run, and what they print is not compared
``ends with N `COMMAND`: REASON``  exit status of a command whose output the page does not show
``ended by Ctrl-C `COMMAND` ``     they go on for ever; SIGINT ends them after some seconds
``typed `COMMAND`: TEXT``          line on their standard input
``in place of `TEXT`: COMMAND``    what root's command prints is put in place of a text, such as an example's id
``played before: COMMAND``         run as root before the block
``file: PATH``                     the block is the content of this file, which is written
=================================  ================================================================

In a ``console`` block commands follow the prompts ``#`` (root) or ``$`` (an operator), and everything
else is what they print; a line ``…`` stands for any lines, and ``…`` in a line for any text. In an ``sh``
block every line is a command of root, which has to end with status 0.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Final

PROMPTS: Final = ("# ", "$ ")
_FENCE: Final = re.compile(r"^( *)```(\w*)$")
_COMMENT: Final = re.compile(r"<!--(.*?)-->", re.DOTALL)
_HEREDOC: Final = re.compile(r"<<-?\s*['\"]?(\w+)")


class MarkKind(StrEnum):
    """First words of a mark."""

    SCENE = "scene"
    PAGE_NOT_PLAYED = "page not played"
    NOT_PLAYED = "not played"
    OTHER_WORDS = "other words"
    ENDS_WITH = "ends with"
    INTERRUPTED = "ended by Ctrl-C"
    TYPED = "typed"
    IN_PLACE = "in place of"
    BEFORE = "played before"
    FILE = "file"


_MARK: Final = re.compile(rf"({'|'.join(MarkKind)})(?: (\d+))?(?: `([^`]*)`)?(?:: (.*))?")
WITH_REASON: Final = frozenset(
    {MarkKind.PAGE_NOT_PLAYED, MarkKind.NOT_PLAYED, MarkKind.OTHER_WORDS, MarkKind.ENDS_WITH}
)
ABOUT_COMMANDS: Final = frozenset(
    {MarkKind.OTHER_WORDS, MarkKind.ENDS_WITH, MarkKind.INTERRUPTED, MarkKind.TYPED}
)
"""Kinds that name the commands of the block which they are about."""


class PageError(Exception):
    """Page that cannot be read as blocks and marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Comment above a block."""

    line: int
    kind: MarkKind
    number: int | None
    command: str
    """Beginning of the commands that it is about, or a text in them; empty: the whole block."""
    text: str

    def is_about(self, command: str) -> bool:
        """Tell whether a command of the block is meant."""
        if self.kind is MarkKind.IN_PLACE:
            return self.command in command
        return command.startswith(self.command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Command of a block."""

    line: int
    """Number of its line in the page, from 1."""
    as_root: bool
    command: str
    shown: tuple[str, ...] | None
    """Lines that it prints by the page; None: the page does not say."""
    marks: tuple[Mark, ...]

    def mark(self, kind: MarkKind) -> Mark | None:
        """Return the command's own mark of a kind, or the block's."""
        return next((mark for mark in self.marks if mark.kind is kind), None)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Fenced block."""

    line: int
    """Number of the line of its first fence, from 1."""
    language: str
    indent: int
    lines: tuple[str, ...]
    marks: tuple[Mark, ...]

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Commands of the block, in their order."""
        if self.language == "console":
            return tuple(self._with_output())
        return tuple(self._without_output()) if self.language == "sh" else ()

    def _with_output(self) -> Iterator[Step]:
        numbered = list(enumerate(self.lines, self.line + 1))
        if numbered and not numbered[0][1].startswith(PROMPTS):
            raise PageError(f"line {numbered[0][0]}: a console block begins with a prompt")
        while numbered:
            line, text = numbered.pop(0)
            command = text[2:]
            while not _is_complete(command):
                if not numbered:
                    raise PageError(f"line {line}: the command has no end")
                command += f"\n{numbered.pop(0)[1]}"
            shown = []
            while numbered and not numbered[0][1].startswith(PROMPTS):
                shown.append(numbered.pop(0)[1])
            yield self._step(line, command, as_root=text.startswith("#"), shown=tuple(shown))

    def _without_output(self) -> Iterator[Step]:
        command, begin = "", 0
        for line, text in enumerate(self.lines, self.line + 1):
            if not command:
                begin = line
            command = f"{command}\n{text}" if command else text
            if not _is_complete(command):
                continue
            if command.strip() and not command.lstrip().startswith("#"):
                yield self._step(begin, command, as_root=True, shown=None)
            command = ""
        if command:
            raise PageError(f"line {begin}: the command has no end")

    def _step(
        self, line: int, command: str, *, as_root: bool, shown: tuple[str, ...] | None
    ) -> Step:
        marks = tuple(mark for mark in self.marks if mark.is_about(command))
        return Step(line=line, as_root=as_root, command=command, shown=shown, marks=marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Documentation page."""

    path: Path
    text: str
    blocks: tuple[Block, ...]
    marks: tuple[Mark, ...]
    """Marks of the page, and of its blocks."""

    def mark(self, kind: MarkKind) -> Mark | None:
        """Return the page's first mark of a kind."""
        return next((mark for mark in self.marks if mark.kind is kind), None)

    @property
    def steps(self) -> Iterator[Step]:
        """Commands of all blocks, in their order."""
        for block in self.blocks:
            yield from block.steps


def read_page(path: Path) -> Page:
    """Return the page in a file. Raises `PageError`."""
    return page_of(path, path.read_text("utf-8"))


def page_of(path: Path, text: str) -> Page:
    """Return the page with this text. Raises `PageError`."""
    blocks: list[Block] = []
    marks: list[Mark] = []
    waiting: list[Mark] = []
    outside: list[tuple[int, str]] = []
    numbered = list(enumerate(text.splitlines(), 1))
    while numbered:
        line, content = numbered.pop(0)
        opened = _FENCE.match(content)
        if opened is None:
            outside.append((line, content))
            continue
        waiting = list(_marks(outside))
        outside = []
        marks += waiting
        inner = []
        while numbered and numbered[0][1].strip() != "```":
            inner.append(numbered.pop(0)[1])
        if not numbered:
            raise PageError(f"line {line}: the fence has no end")
        numbered.pop(0)
        indent = len(opened[1])
        blocks.append(
            Block(
                line=line,
                language=opened[2],
                indent=indent,
                lines=tuple(one[indent:] for one in inner),
                marks=tuple(waiting),
            )
        )
    marks += _marks(outside)
    return Page(path=path, text=text, blocks=tuple(blocks), marks=tuple(marks))


def _marks(numbered: list[tuple[int, str]]) -> Iterator[Mark]:
    """Yield the marks among lines outside of blocks."""
    if not numbered:
        return
    text = "\n".join(content for _, content in numbered)
    for found in _COMMENT.finditer(text):
        line = numbered[0][0] + text.count("\n", 0, found.start())
        words = " ".join(found[1].split())
        if words.startswith("Generated by"):
            continue
        read = _MARK.fullmatch(words)
        if read is None:
            raise PageError(f"line {line}: no mark: {words}")
        number = int(read[2]) if read[2] else None
        kind = MarkKind(read[1])
        yield Mark(line=line, kind=kind, number=number, command=read[3] or "", text=read[4] or "")


def faults(page: Page) -> list[str]:
    """Return what is wrong with the marks of a page."""
    found = []
    for mark in page.marks:
        if mark.kind in WITH_REASON and len(mark.text.split()) < 3:
            found.append(f"line {mark.line}: {mark.kind}: no reason")
        if mark.kind in ABOUT_COMMANDS and not mark.command:
            found.append(f"line {mark.line}: {mark.kind}: no command")
        if (mark.number is None) == (mark.kind is MarkKind.ENDS_WITH):
            found.append(f"line {mark.line}: {mark.kind}: number")
        if mark.command and not any(mark in step.marks for step in page.steps):
            found.append(f"line {mark.line}: {mark.kind}: about no command: {mark.command!r}")
    return found


def _is_complete(command: str) -> bool:
    """Tell whether a command has no line to follow: open quotes, a backslash at its end, a here-document."""
    if (opened := _HEREDOC.search(command)) is not None:
        return command.rpartition("\n")[2] == opened[1] and "\n" in command
    if command.endswith("\\"):
        return False
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True
