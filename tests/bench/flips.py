"""Flipped bytes under the real daemons: ``python -m tests.bench.flips`` (root).

Supervisor and health agent of a booted box start with four full databases again and again, each time with one bit of each
file flipped. The header and the schema are hit as often as all other pages. After each start the commands that read the
files are typed, both daemons are stopped in good order, and the rows are compared with those of a start without damage.

``started``   starts after which both daemons were active without a further attempt, and each command did its work
``put_right`` flips in header or schema that were put right
``replaced``  files that were renamed and replaced
``told``      of these, those that the daemon's log names
``on_page``   rows lost or changed, of all flips, that lay on the damaged page
``below``     rows lost on pages to which only the damaged one led
``beside``    rows lost anywhere else: there must be none

usage: python -m tests.bench.flips [--flips N] [--seed N]
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.machine import installed, say
from tests.fakes.damaged_rows import (
    PAGE_BYTES,
    Page,
    Rows,
    flip,
    flips,
    lost_beside,
    read_pages,
    read_rows,
)
from tests.fakes.database_rows import WRITERS
from tests.system.fleet import Fleet

ROWS: Final = 300
FILES: Final = {
    "operations": "var/lib/appliance/state.sqlite",
    "states": "var/lib/appliance-health/states.sqlite",
    "alerts": "var/lib/appliance-health/alerts.sqlite",
    "measurements": "var/lib/appliance-health/measurements.sqlite",
}
_DAEMONS: Final = "appliance-supervisor.service appliance-health.service"
_OTHERS: Final = "gateway web notifier auditor checker"
_COMMANDS: Final = (
    "appliance status --json",
    "appliance events --json",
    "appliance alerts --json",
    "appliance history genesis --json",
)
_TOLD_EVERY: Final = 5
_ANSWERED: Final = frozenset("013")
"""Exit statuses of answers; others, with 3, may say that the models are not as declared."""
_FRUITLESS: Final = 0.3
"""Share of the written rows that a start without damage must keep, else the figures show nothing: the agent drops
states of unknown profiles, and settles what is queued for a target that it does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Database that is damaged."""

    path: Path
    content: bytes
    pages: Mapping[int, Page]
    rows: Rows
    """Rows that a start without damage keeps."""
    owner: tuple[int, int]


def main() -> None:
    """Print the figures; fail when a daemon has not started, or more was lost than was damaged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)  # noqa: S311 - places, no secrets
    with installed() as fleet, tempfile.TemporaryDirectory(prefix="flips-") as folder:
        _quiet(fleet)
        targets = _targets(fleet, Path(folder))
        places = {n: flips(t.content, asked.flips, chance) for n, t in targets.items()}
        counts: dict[str, Counter[str]] = {name: Counter() for name in targets}
        started = 0
        faults: list[str] = []
        began_s = time.monotonic()
        for number in range(asked.flips):
            hits = {name: places[name][number] for name in targets}
            found = _round(fleet, targets, hits, counts, Path(folder))
            started += not any(one.startswith("start") for one in found)
            faults += found
            for one in found:
                say(f"round {number}: {one}")
            if number % _TOLD_EVERY == _TOLD_EVERY - 1:
                sums = {name: dict(count) for name, count in counts.items()}
                say(
                    f"{number + 1} rounds, {time.monotonic() - began_s:.0f} s: {started} started, {sums}"
                )
    figures = {
        "flips_a_file": asked.flips,
        "seed": asked.seed,
        "started": started,
        "faults": len(faults),
        **{
            f"{name}_{what}": counts[name][what]
            for name in targets
            for what in ("put_right", "replaced", "told", "on_page", "below", "beside")
        },
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    if faults:
        sys.exit(f"{len(faults)} faults, such as: {faults[0]}")


def _quiet(fleet: Fleet) -> None:
    """End every process that would start one of the two daemons through its socket."""
    units = " ".join(f"appliance-{one}.socket appliance-{one}.service" for one in _OTHERS.split())
    fleet.box.run(f"systemctl stop {units} appliance-health-again.timer")
    fleet.box.run(f"systemctl start {_DAEMONS}")
    _use(fleet)
    fleet.box.run(f"systemctl stop {_DAEMONS}")


def _targets(fleet: Fleet, folder: Path) -> Mapping[str, Target]:
    """Write the databases, and find what a start without damage keeps of them."""
    now = time.time()
    targets = {}
    for name, place in FILES.items():
        written, path = folder / f"{name}.sqlite", fleet.box.root / place
        asyncio.run(WRITERS[name](written, ROWS, now))
        owner = path.stat()
        targets[name] = Target(
            path=path,
            content=written.read_bytes(),
            pages=read_pages(written),
            rows=read_rows(written),
            owner=(owner.st_uid, owner.st_gid),
        )
    for target in targets.values():
        _place(target, target.content)
    if faults := _start(fleet):
        sys.exit(f"without damage: {faults}")
    fleet.box.run(f"systemctl stop {_DAEMONS}")
    kept = {}
    for name, target in targets.items():
        rows = dict(target.rows.items() & _rows(target, folder).items())
        say(
            f"{name}: {len(target.content) >> 10} KiB, {len(rows)} of {len(target.rows)} rows are kept"
        )
        if len(rows) < _FRUITLESS * len(target.rows):
            sys.exit(f"{name}: the daemon drops the rows that were written")
        kept[name] = Target(
            path=target.path,
            content=target.content,
            pages=target.pages,
            rows=rows,
            owner=target.owner,
        )
    return kept


def _round(
    fleet: Fleet,
    targets: Mapping[str, Target],
    hits: Mapping[str, tuple[int, int]],
    counts: Mapping[str, Counter[str]],
    folder: Path,
) -> list[str]:
    """Start the daemons with a flip in each file; return what was wrong."""
    for name, target in targets.items():
        _place(target, flip(target.content, *hits[name]))
    began = fleet.box.run("date +%s.%N").stdout.strip()
    where = ", ".join(f"{name} {place} bit {bit}" for name, (place, bit) in hits.items())
    faults = [f"start: {one} ({where})" for one in _start(fleet)]
    fleet.box.run(f"systemctl stop {_DAEMONS}")
    log = fleet.box.run(f"journalctl -o cat --no-pager --since=@{began}").stdout
    for name, target in targets.items():
        count, file = counts[name], target.path.name
        place, bit = hits[name]
        page = target.pages.get(place // PAGE_BYTES + 1, Page())
        rows = _rows(target, folder)
        lost = target.rows.keys() - dict(target.rows.items() & rows.items()).keys()
        is_replaced = target.path.with_suffix(".damaged").exists()
        is_told = any(
            file in line and ("damage" in line or "cannot be used" in line)
            for line in log.splitlines()
        )
        beside = lost_beside(target.rows, rows, page)
        count["put_right"] += f"{file}: its damaged" in log
        count["replaced"] += is_replaced
        count["told"] += is_replaced and is_told
        count["on_page"] += len(lost & page.own)
        count["below"] += len(lost & page.below)
        count["beside"] += len(beside)
        if beside:
            faults.append(
                f"lost: {len(beside)} rows, such as {min(beside)} ({name} {place} bit {bit})"
            )
        if is_replaced and not is_told:
            faults.append(f"untold: {name} {place} bit {bit}")
    return faults


def _start(fleet: Fleet) -> list[str]:
    """Start both daemons and use them; return what was wrong."""
    done = fleet.box.run(
        f"systemctl reset-failed {_DAEMONS}; systemctl start {_DAEMONS}", check=False
    )
    faults = [done.stderr] if done.returncode else []
    faults += _use(fleet)
    shown = fleet.box.run(f"systemctl show -P ActiveState -P NRestarts {_DAEMONS}").stdout.split()
    if sorted(shown) != ["0", "0", "active", "active"]:
        faults.append(f"units: {shown}")
    return faults


def _use(fleet: Fleet) -> list[str]:
    """Type the commands that read the databases; return those without an answer."""
    line = "; ".join(f"{command} >/run/flips.$$ 2>&1; echo $?" for command in _COMMANDS)
    statuses = fleet.box.run(line, check=False).stdout.split()
    return [
        f"{command}: {status}"
        for command, status in zip(_COMMANDS, statuses, strict=True)
        if status not in _ANSWERED
    ]


def _place(target: Target, content: bytes) -> None:
    for suffix in ("", "-wal", "-shm"):
        target.path.with_name(f"{target.path.name}{suffix}").unlink(missing_ok=True)
        damaged = target.path.with_suffix(".damaged")
        damaged.with_name(f"{damaged.name}{suffix}").unlink(missing_ok=True)
    target.path.write_bytes(content)
    target.path.chmod(0o600)
    os.chown(target.path, *target.owner)


def _rows(target: Target, folder: Path) -> Rows:
    """Return the rows of a file that no daemon has open, read from a copy."""
    copy = folder / "copy.sqlite"
    for suffix in ("", "-wal"):
        copied = copy.with_name(f"{copy.name}{suffix}")
        copied.unlink(missing_ok=True)
        source = target.path.with_name(f"{target.path.name}{suffix}")
        if source.exists():
            shutil.copyfile(source, copied)
    return read_rows(copy)


if __name__ == "__main__":
    main()
