"""Renewal of what pages show: the output of the commands that were played."""

from collections.abc import Sequence

from tests.transcripts.masks import is_printed, renewed
from tests.transcripts.page_blocks import Page
from tests.transcripts.playing import Played


def renewed_text(page: Page, played: Sequence[Played]) -> str:
    """Return the text of a page in which the output of each command that differs is the printed one."""
    lines = page.text.splitlines()
    # From the end on, so that the numbers of lines before stay true.
    for one in reversed(played):
        shown = one.step.shown
        if one.ran is None or shown is None or not one.is_compared:
            continue
        if is_printed(shown, one.lines):
            continue
        begin = one.step.line + one.step.command.count("\n")
        block = next(b for b in reversed(page.blocks) if b.line < one.step.line)
        indent = " " * block.indent
        new = [f"{indent}{line}".rstrip() for line in renewed(shown, one.lines)]
        lines[begin : begin + len(shown)] = new
    return "\n".join([*lines, ""])
