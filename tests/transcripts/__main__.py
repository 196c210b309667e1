"""Play every command of the pages on a booted box: ``python -m tests.transcripts [--write] [PAGE …]``, by root.

Prints a diff for each command whose output is not what its page shows; with ``--write`` the page shows the
new output, to be read before it is committed. The last line is one JSON object.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.bench.machine import report, say
from tests.system.rig import Box, RigError, missing, sweep
from tests.system.rig.appliance import WHEELS, fetch_wheels
from tests.transcripts.command_check import ROOT
from tests.transcripts.page_blocks import read_page
from tests.transcripts.playing import PAGES, Played, Player
from tests.transcripts.renewal import renewed_text
from tests.transcripts.scenes import bring_checkout

_LAST: Final = ROOT / "docs/how-to/upgrade-and-uninstall.md"
"""Page whose commands remove the appliance."""


def play(box: Box, paths: Sequence[Path], *, write: bool) -> tuple[list[Played], int]:
    """Play pages in a box, and print what is not as they say; return the steps, and the number of broken pages.

    Args:
        box: Box with the checkout.
        paths: The pages, in their order.
        write: Let the pages show what is printed now.
    """
    player = Player(box, say)
    played: list[Played] = []
    broken = 0
    for path in paths:
        page = read_page(path)
        name = path.relative_to(ROOT)
        say(f"{name}")
        of_page: list[Played] = []
        try:
            of_page += player.play(page)
        except (RigError, subprocess.TimeoutExpired) as error:
            broken += 1
            sys.stdout.write(f"{name}: the page cannot be played: {error}\n")
        played += of_page
        sys.stdout.writelines(line for one in of_page for line in told(name, one))
        sys.stdout.flush()
        if write and path.read_text("utf-8") != page.text:
            sys.stdout.write(f"{name}: it was edited meanwhile, and is not renewed\n")
        elif write:
            path.write_text(renewed_text(page, of_page), "utf-8")
    return played, broken


def told(name: Path, played: Played) -> Iterator[str]:
    """Yield the lines about a step that is not as its page says."""
    faults = list(played.faults())
    if faults:
        yield f"{name}:{played.step.line}: {played.step.command}\n"
    yield from (f"  {fault}\n" for fault in faults)


def main() -> int:
    """Play the pages; exit status 1: a command failed, or printed something else."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: all")
    parser.add_argument(
        "--write", action="store_true", help="let the pages show what is printed now"
    )
    asked = parser.parse_args()
    if reason := missing():
        sys.exit(f"not played: {reason}")
    sweep()
    paths = [path.resolve() for path in asked.pages] or list(PAGES)
    paths.sort(key=lambda path: path == _LAST)
    with Box(read_only={WHEELS: fetch_wheels()}) as box:
        bring_checkout(box)
        played, broken = play(box, paths, write=asked.write)
    failed = broken + sum(any(one.faults()) for one in played)
    ran = [one for one in played if one.ran is not None]
    report(
        {
            "pages": len(paths),
            "commands": len(played),
            "played": len(ran),
            "compared": sum(one.is_compared and one.step.shown is not None for one in ran),
            "failed": failed,
        }
    )
    return int(failed > 0 and not asked.write)


if __name__ == "__main__":
    sys.exit(main())
