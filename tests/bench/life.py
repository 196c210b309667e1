"""make bench-life: an ordinary life of a box, and what its phone is told: every incident once, nothing else.

A month has two incidents of every rule and of a service that comes and goes, and besides switches, boots,
suspends, holds, stops by hand, silences, upgrades, readings that are missing, nightly backups in a planned
window, a night without internet, a DST change, and a retired model that lies about broken. Its looks go
through the real rules, alert book and plan of the outbox; then thirty days with a boot a day and thirty
power cuts go through the real heartbeat. The last line is JSON.

    python -m tests.bench.life                     one month and ten more with other seeds
    python -m tests.bench.life --months 1 --days 3 --seed 7
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.life_box import LifeBox
from tests.bench.life_month import month
from tests.bench.life_silence import live_with_boots_and_cuts
from tests.bench.life_verdict import Verdict, judge
from tests.bench.life_world import DAY_S, Effect

_MONTHS: Final = 11
_DAYS: Final = 30
_POWER_CUT_WITHIN_S: Final = 360.0


def live(seed: int, days: int = _DAYS) -> Verdict:
    """Return the verdict on a month of a seed."""
    planned = month(seed, days)
    box = LifeBox(month=planned)
    box.live()
    return judge(planned.effects, box.told)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 where every incident was told once and nothing else was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=int, default=_MONTHS)
    parser.add_argument("--days", type=int, default=_DAYS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    seeds = range(given.seed, given.seed + given.months)
    work = partial(live, days=given.days)
    verdicts = []
    with ProcessPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as workers:
        for seed, verdict in zip(seeds, workers.map(work, seeds), strict=True):
            verdicts.append(verdict)
            for line in lines(seed, verdict):
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    with tempfile.TemporaryDirectory() as directory:
        silence = live_with_boots_and_cuts(given.seed, Path(directory))
    report = {
        "months": given.months,
        "days": given.days,
        "incidents": sum(one.incidents for one in verdicts),
        "told": sum(one.told for one in verdicts),
        "missed": sum(len(one.missed) for one in verdicts),
        "doubled": sum(len(one.doubled) for one in verdicts),
        "false": sum(len(one.false) for one in verdicts),
        "unresolved": sum(len(one.unresolved) for one in verdicts),
        "reminders": sum(one.reminders for one in verdicts),
        "false_silences": silence.false,
        "missed_power_cuts": silence.missed,
        "power_cut_told_within_s": round(silence.slowest_s, 1),
    }
    sys.stdout.write(f"{json.dumps(report)}\n")
    wrong = ("missed", "doubled", "false", "unresolved", "false_silences", "missed_power_cuts")
    is_right = not any(report[key] for key in wrong)
    return 0 if is_right and silence.slowest_s <= _POWER_CUT_WITHIN_S else 1


def lines(seed: int, verdict: Verdict) -> Iterator[str]:
    """Yield what was wrong in a month, and its sum."""
    for word in ("missed", "doubled", "unresolved"):
        effects: Sequence[Effect] = getattr(verdict, word)
        for effect in effects:
            yield f"{word}: {effect.name} on day {effect.begin_s / DAY_S:.3f}"
    for one in verdict.false:
        subject = f"{one.subject.text} {one.rule}"
        yield f"false: {one.kind} of {subject} on day {one.changed_s / DAY_S:.3f}"
    told = f"{verdict.told} of {verdict.incidents} incidents told once"
    yield f"seed {seed}: {told}, {verdict.reminders} reminders"


if __name__ == "__main__":
    sys.exit(main())
