"""Check of the completions in Debian's own bash, zsh and fish: ``make check-shells`` (root).

A box has the appliance, two profiles and a watch. The shells are installed in it as packages and find the completions
that install.sh has written where each shell looks by itself. `shell_typist` types lines, presses Tab and reads the line.

complete   verbs, options, choices and names of profiles are completed; where several fit they are shown
execute    neither a command substitution on the line, nor a verb, nor a program named appliance in the present
           directory is run by Tab; a line that is entered is run

The last line is JSON.
"""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench.debian import downloaded
from tests.bench.machine import prepared, say
from tests.system.fleet import Fleet
from tests.system.rig import Box
from tests.system.rig.appliance import install

SHELLS: Final = ("bash", "zsh", "fish")
PACKAGES: Final = ("bash-completion", "zsh", "fish")
ARCHIVES: Final = "/run/archives"
TYPIST: Final = "/usr/local/lib/shell_typist.py"
EXECUTED: Final = "/var/tmp/executed"  # noqa: S108 - in the box
DOWNLOADS: Final = "/var/tmp/downloads"  # noqa: S108 - in the box
"""Directory with a program named appliance that is not ours."""
WHOLE: Final[Mapping[str, str]] = {
    "appliance swi": "appliance switch ",
    "appliance switch gen": "appliance switch genesis ",
    "appliance show ae": "appliance show aeon ",
    "appliance switch genesis --dry": "appliance switch genesis --dry-run ",
    "appliance mark genesis ret": "appliance mark genesis retired ",
    "appliance mark pho": "appliance mark phones ",
    "appliance completion fi": "appliance completion fish ",
    "appliance baseline ac": "appliance baseline accept ",
    "appliance nothing-like-it": "appliance nothing-like-it",
}
"""Lines with one completion, and what Tab makes of them."""
SHOWN: Final[Mapping[str, Sequence[str]]] = {
    "appliance switch ": ("aeon", "genesis"),
    "appliance st": ("start", "status", "stop"),
    "appliance mark genesis ": ("live", "standby", "retired"),
}
"""Lines with several completions."""
HARMLESS: Final = (
    f"appliance switch $(touch {EXECUTED}) gen",
    f"appliance switch (touch {EXECUTED}) gen",
    f"appliance switch `touch {EXECUTED}` gen",
    f'appliance switch "$(touch {EXECUTED})" --dry',
    f"appliance run -- touch {EXECUTED} --dry",
    "appliance stop ",
    "appliance switch genesis ",
    "./appliance swi",
    f"{DOWNLOADS}/appliance swi",
)
"""Lines at which Tab must run nothing."""


def main() -> None:
    """Print the figures; end with status 1 where a completion is wrong."""
    archives = downloaded(PACKAGES)
    with prepared(install) as image, Box(image, read_only={ARCHIVES: archives}) as box:
        box.run(f"dpkg --install --no-triggers {ARCHIVES}/*.deb", timeout_s=300)
        fleet = prepare(box)
        before = acted(fleet)
        found = {shell: check_shell(box, shell) for shell in SHELLS}
        if acted(fleet) != before:
            sys.exit("failed: a completion has run a verb")
        versions = {shell: version(box, shell) for shell in SHELLS}
    figures: dict[str, object] = {
        "lines": sum(len(times) for times in found.values()),
        **{f"{shell}_median_ms": round(statistics.median(found[shell])) for shell in SHELLS},
        **versions,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def prepare(box: Box) -> Fleet:
    """Write profiles, a watch, the typist and a program that is not ours; genesis serves."""
    fleet = Fleet(box)
    fleet.profile("genesis", 9001)
    fleet.profile("aeon", 9002)
    box.write(
        "/etc/appliance/appliance.toml",
        '[[watch]]\nname = "phones"\nurl = "http://127.0.0.1:9003/"\n',
    )
    fleet.apply()
    fleet.switch("genesis")
    box.write(TYPIST, Path(__file__).with_name("shell_typist.py").read_text(encoding="utf-8"))
    box.write(f"{DOWNLOADS}/appliance", f"#!/bin/sh\ntouch {EXECUTED}\n", mode=0o755)
    return fleet


def acted(fleet: Fleet) -> object:
    """Return what a verb would have changed."""
    status = fleet.status()
    last = status["last_operation"]
    marks = [(row["name"], row["mark"], row["state"]) for row in status["profiles"]]
    return last and last["id"], status["committed"], status["hold"], marks, status["watches"]


def check_shell(box: Box, shell: str) -> list[float]:
    """Check one shell; return the milliseconds of each completion."""
    entered = {"line": f"touch {EXECUTED}", "enter": True}
    lines = [{"line": line} for line in (*WHOLE, *SHOWN, *HARMLESS)]
    results = typed(box, shell, lines)
    by_line = {case["line"]: result for case, result in zip(lines, results, strict=True)}
    wrong = [
        f"{line!r} became {by_line[line]['line']!r}, not {expected!r}"
        for line, expected in WHOLE.items()
        if by_line[line]["line"] != expected
    ]
    wrong += [
        f"{line!r} does not show {word}: {by_line[line]['screen']!r}"
        for line, words in SHOWN.items()
        for word in words
        if word not in by_line[line]["screen"].removeprefix(line)
    ]
    if is_executed(box):
        wrong.append("Tab has run a command")
    typed(box, shell, [entered])
    if not is_executed(box):
        wrong.append("a line that is entered is not run, so nothing is shown about Tab")
    box.run("rm", "-f", EXECUTED)
    if wrong:
        sys.exit(f"failed: {shell}:\n" + "\n".join(wrong))
    say(f"{shell}: {len(lines)} lines are completed as they should be, and nothing is run")
    return [result["ms"] for result in results]


def typed(box: Box, shell: str, lines: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return what became of lines in a directory with a program named as ours."""
    cases = [{**line, "shell": shell, "directory": DOWNLOADS} for line in lines]
    done = box.run("/usr/bin/python3", TYPIST, stdin=json.dumps(cases), timeout_s=600)
    found: Sequence[Mapping[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def is_executed(box: Box) -> bool:
    """Tell whether a command of a line was run."""
    return box.run("test", "-e", EXECUTED, check=False).returncode == 0


def version(box: Box, shell: str) -> str:
    """Return the version of a shell's package."""
    return box.run("dpkg-query", "--show", "--showformat=${Version}", shell).stdout


if __name__ == "__main__":
    main()
