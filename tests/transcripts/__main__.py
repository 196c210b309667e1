"""Play every command of the pages on a booted box: ``python -m tests.transcripts [--write] [PAGE …]``, by root.

Prints a diff for each command whose output is not what its page shows; with ``--write`` the page shows the
new output, to be read before it is committed. The last line is one JSON object.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

from tests.bench.machine import report, say
from tests.system.rig import Box, missing, sweep
from tests.system.rig.appliance import WHEELS, fetch_wheels
from tests.transcripts.command_check import ROOT
from tests.transcripts.page_blocks import read_page
from tests.transcripts.playing import PAGES, Played, Player
from tests.transcripts.renewal import renewed_text
from tests.transcripts.scenes import bring_checkout

_LAST: Final = ROOT / "docs/how-to/upgrade-and-uninstall.md"
"""Page whose commands remove the appliance."""


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
    played: list[Played] = []
    with Box(read_only={WHEELS: fetch_wheels()}) as box:
        bring_checkout(box)
        player = Player(box, say)
        for path in paths:
            page = read_page(path)
            say(f"{path.relative_to(ROOT)}")
            of_page = list(player.play(page))
            played += of_page
            for one in of_page:
                for number, fault in enumerate(one.faults()):
                    where = f"{path.relative_to(ROOT)}:{one.step.line}: {one.step.command}\n"
                    sys.stdout.write(f"{'' if number else where}  {fault}\n")
            if asked.write:
                path.write_text(renewed_text(page, of_page), "utf-8")
    failed = sum(any(one.faults()) for one in played)
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
