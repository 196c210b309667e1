"""Player of a page: runs its commands in a box, and compares what they print."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.system.fleet import OPERATOR
from tests.system.rig import Box, RigError
from tests.transcripts.box_shell import BoxShell, Ran
from tests.transcripts.command_check import ROOT
from tests.transcripts.masks import difference, is_printed
from tests.transcripts.page_blocks import Block, MarkKind, Page, Step
from tests.transcripts.scenes import CHECKOUT, INDEX, SCENES

PAGES: Final = (
    ROOT / "README.md",
    *sorted((ROOT / "docs/tutorial").glob("*.md")),
    *sorted((ROOT / "docs/how-to").glob("*.md")),
)
"""Pages whose commands are played, in this order, in one box."""
HOST: Final = "garage"
"""Name of the box in the pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Step with its outcome."""

    page: Path
    step: Step
    ran: Ran | None
    """None: not run, by a mark."""
    is_compared: bool

    @property
    def lines(self) -> list[str]:
        """Return what was printed, with the name of the box that pages use."""
        return list(self.ran.lines) if self.ran else []

    def faults(self) -> Iterator[str]:
        """Yield what is wrong: a status that the page does not promise, other output."""
        if self.ran is None:
            return
        if self.ran.status is None:
            yield "it did not end"
        elif self.step.shown is None or not self.is_compared:
            yield from self._status_faults(self.ran)
        elif not is_printed(self.step.shown, self.lines):
            yield "the page shows other output than it prints (+):"
            yield from (f"    {line}" for line in difference(self.step.shown, self.lines))

    def _status_faults(self, ran: Ran) -> Iterator[str]:
        ends = self.step.mark(MarkKind.ENDS_WITH)
        expected = ends.number if ends else 0
        if ran.status != expected and self.step.mark(MarkKind.INTERRUPTED) is None:
            yield f"it ended with {ran.status}, not {expected}:"
            yield from (f"    {line}" for line in self.lines)


class Player:
    """Person who follows pages in a box."""

    def __init__(self, box: Box, tell: Callable[[str], None]) -> None:
        self._box = box
        self._tell = tell

    def play(self, page: Page) -> Iterator[Played]:
        """Yield each step of a page with its outcome; the box is brought into the page's scene first."""
        if page.mark(MarkKind.PAGE_NOT_PLAYED) is not None:
            yield from (self._skipped(page, step) for step in page.steps)
            return
        if (scene := page.mark(MarkKind.SCENE)) is not None:
            SCENES[scene.text](self._box)
        with (
            BoxShell(self._box, user=None, directory=CHECKOUT, env=INDEX) as root,
            BoxShell(self._box, user=OPERATOR, directory=f"/home/{OPERATOR}", env={}) as operator,
        ):
            for block in page.blocks:
                yield from self._block(page, block, root, operator)

    def _block(
        self, page: Page, block: Block, root: BoxShell, operator: BoxShell
    ) -> Iterator[Played]:
        for mark in block.marks:
            if mark.kind is MarkKind.BEFORE:
                self._prepare(root, mark.text)
            if mark.kind is MarkKind.FILE:
                self._box.write(mark.text, "\n".join([*block.lines, ""]))
        for step in block.steps:
            if step.mark(MarkKind.NOT_PLAYED) is not None:
                yield self._skipped(page, step)
                continue
            typed = step.mark(MarkKind.TYPED)
            shell = root if step.as_root else operator
            command = step.command
            for mark in step.marks:
                if mark.kind is MarkKind.IN_PLACE:
                    said = self._box.run(mark.text).stdout.strip()
                    command = command.replace(mark.command, said)
            ran = shell.run(
                command,
                typed=f"{typed.text}\n" if typed else "",
                interrupted=step.mark(MarkKind.INTERRUPTED) is not None,
            )
            lines = [line.replace(self._box.name, HOST) for line in ran.lines]
            ran = Ran(status=ran.status, lines=lines, seconds=ran.seconds)
            self._tell(f"{ran.seconds:6.1f} s  {step.command.partition(chr(10))[0]}")
            is_compared = step.mark(MarkKind.OTHER_WORDS) is None
            yield Played(page=page.path, step=step, ran=ran, is_compared=is_compared)

    @staticmethod
    def _prepare(root: BoxShell, command: str) -> None:
        ran = root.run(command)
        if ran.status != 0:
            end = "did not end" if ran.status is None else f"ended with {ran.status}"
            printed = "\n".join(ran.lines)
            raise RigError(f"{command} {end}:\n{printed}")

    @staticmethod
    def _skipped(page: Page, step: Step) -> Played:
        return Played(page=page.path, step=step, ran=None, is_compared=False)
