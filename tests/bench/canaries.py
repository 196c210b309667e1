"""Acceptance of the quality canaries: false events in healthy years, delays where answers break.

The rounds are those of the schedule at its default cadence, with requests of one second, of which
some give way to real ones. Each month has a bad hour, in which everything fails. Prints figures by
share of broken answers, then JSON.
"""

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from appliance.model.measurements import EventKind
from appliance.speed.canaries import SCHEMA_GROUP, TOOLS_GROUP, Canary
from appliance.speed.canary_schedule import (
    CanarySchedule,
    after_request,
    after_round,
    is_affordable,
    is_further,
    next_round_s,
)
from appliance.speed.canary_verdict import (
    PASSED,
    CanaryOutcome,
    CanaryVerdict,
    Expectation,
)
from appliance.speed.quality_record import (
    QualityRecord,
    begin_round,
    count_verdict,
    encode_quality,
    wants_more,
)
from tests.bench.machine import say

SEEDS: Final = (1, 2, 3, 4)
YEARS: Final = 10
EPISODES: Final = 250
HEALTHY: Final = (0.0, 0.005, 0.01, 0.02)
BROKEN: Final = (0.2, 0.38, 1.0)
TARGET: Final = 0.38
FOUND_PERCENT: Final = 99.0
HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
YEAR_S: Final = 365.25 * DAY_S
_YIELDED: Final = 0.1
_REQUEST_S: Final = 1.0
_BAD_EVERY_S: Final = 30 * DAY_S
_BAD_S: Final = 45 * 60.0
_FAULT: Final = CanaryVerdict(outcome=CanaryOutcome.MALFORMED, fault="the answer is no JSON")


def _canaries(**groups: int) -> Sequence[Canary]:
    return [
        Canary(name=f"{group}-{number}", group=group, body={}, expectation=Expectation())
        for group, count in groups.items()
        for number in range(count)
    ]


PROFILES: Final[Mapping[str, tuple[str, Sequence[Canary]]]] = {
    "tools": (TOOLS_GROUP, _canaries(**{SCHEMA_GROUP: 2, TOOLS_GROUP: 4})),
    "schema": (SCHEMA_GROUP, _canaries(**{SCHEMA_GROUP: 2})),
    "own": ("own:a", _canaries(**{SCHEMA_GROUP: 2, "own:a": 1, "own:b": 1})),
}
"""Profiles by the group of canaries that breaks in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Years or days of one profile."""

    seed: str
    profile: str
    length_s: float
    share: Callable[[float], float]
    """Function that returns the share of broken answers at a time."""
    bad_hours: bool = False


@dataclass(slots=True, kw_only=True)
class Told:
    """Events of a world, and the cost."""

    lost_s: list[float] = field(default_factory=list)
    recovered_s: list[float] = field(default_factory=list)
    requests: int = 0


def live(world: World) -> Told:
    """Return what is told in a world."""
    chance = random.Random(f"{world.profile} {world.seed}")  # noqa: S311 - a simulation
    broken, canaries = PROFILES[world.profile]
    record, told = QualityRecord(), Told()
    schedule = CanarySchedule(name=world.seed, started_s=0.0)
    left: list[Canary] = []
    now_s = 0.0
    while True:
        now_s = max(now_s, next_round_s(schedule, wants_more=wants_more(record)))
        if now_s >= world.length_s:
            return told
        further = is_further(schedule, now_s)
        left = left or list(begin_round(record, canaries, further=further))
        began_s, answered, interrupted = now_s, 0, False
        while left and not interrupted and (not answered or is_affordable(schedule)):
            told.requests += 1
            sent_s, now_s = now_s, now_s + _REQUEST_S
            schedule = after_request(schedule, began_s=sent_s, now_s=now_s)
            interrupted = chance.random() < _YIELDED
            if not interrupted:
                is_bad = world.bad_hours and now_s % _BAD_EVERY_S < _BAD_S
                share = world.share(now_s) if left[0].group == broken else 0.0
                verdict = _FAULT if is_bad or chance.random() < share else PASSED
                _count(record, left.pop(0), verdict, now_s, told)
                answered += 1
        schedule = after_round(
            schedule,
            began_s=began_s,
            now_s=now_s,
            answered=answered,
            interrupted=interrupted,
            unfinished=bool(left),
        )


def _count(
    record: QualityRecord, canary: Canary, verdict: CanaryVerdict, now_s: float, told: Told
) -> None:
    event = count_verdict(record, "genesis", canary, verdict, now_s).event
    if event is not None:
        times = told.lost_s if event.kind is EventKind.QUALITY_LOST else told.recovered_s
        times.append(now_s)


@dataclass(slots=True, kw_only=True)
class Delays:
    """Episodes of a week with broken answers, and a week after their repair."""

    found_h: list[float] = field(default_factory=list)
    """Delay of each; infinite: not found."""
    again: int = 0
    """Episodes that were told to be over while they were not."""
    recovered_h: list[float] = field(default_factory=list)
    requests: int = 0

    def figures(self) -> Mapping[str, float]:
        found = sorted(self.found_h)
        recovered = sorted(self.recovered_h)
        within = sum(delay <= 24 for delay in found)
        return {
            "found_24h_percent": 100 * within / len(found),
            "delay_p50_h": found[len(found) // 2],
            "delay_p99_h": found[math.ceil(0.99 * len(found)) - 1],
            "held_percent": 100 * (1 - self.again / len(found)),
            "recovery_p95_h": recovered[math.ceil(0.95 * len(recovered)) - 1],
        }


BREAKS_S: Final = 2 * DAY_S
MENDED_S: Final = 9 * DAY_S


def healthy_events(profile: str, seed: int, share: float, years: float) -> tuple[int, int]:
    """Return the events of healthy years with bad hours, and the requests."""
    told = live(
        World(
            seed=f"{seed} {share}",
            profile=profile,
            length_s=years * YEAR_S,
            share=lambda _: share,
            bad_hours=True,
        )
    )
    return len(told.lost_s), told.requests


def broken_delays(profile: str, seed: int, share: float, episodes: int) -> Delays:
    """Return the delays of episodes in which a share of the answers breaks."""
    delays = Delays()
    for episode in range(episodes):
        # From one moment of the schedule to another, since each has a name of its own.
        told = live(
            World(
                seed=f"{seed} {share} {episode}",
                profile=profile,
                length_s=MENDED_S + 7 * DAY_S,
                share=lambda now_s: share if BREAKS_S <= now_s < MENDED_S else 0.0,
            )
        )
        found = [at_s for at_s in told.lost_s if at_s < MENDED_S]
        mended = [at_s for at_s in told.recovered_s if at_s >= MENDED_S]
        delays.found_h.append((found[0] - BREAKS_S) / HOUR_S if found else math.inf)
        delays.again += any(at_s < MENDED_S for at_s in told.recovered_s)
        delays.recovered_h.append((mended[0] - MENDED_S) / HOUR_S if mended else math.inf)
        delays.requests += told.requests
    return delays


def main() -> int:
    """Print the figures."""
    options = _options()
    misses: list[str] = []
    document: dict[str, object] = {"seeds": options.seeds, "years": options.years}
    with ProcessPoolExecutor() as pool:
        healthy = {
            (profile, share): [
                pool.submit(healthy_events, profile, seed, share, options.years)
                for seed in options.seeds
            ]
            for profile in PROFILES
            for share in HEALTHY
        }
        broken = {
            (profile, share): [
                pool.submit(broken_delays, profile, seed, share, options.episodes)
                for seed in options.seeds
            ]
            for profile in PROFILES
            for share in BROKEN
        }
        for (profile, share), tasks in healthy.items():
            results = [task.result() for task in tasks]
            false = sum(events for events, _ in results)
            days = len(results) * options.years * 365.25
            a_day = round(sum(requests for _, requests in results) / days, 1)
            name = f"{profile} {100 * share:g} %"
            say(f"{name} broken, {len(results)} worlds of {options.years:g} years: {false} events")
            document[name] = {"events": false, "requests_a_day": a_day}
            misses += [f"{name}: {false} events"] if false else []
        for (profile, share), waiting in broken.items():
            delays = Delays()
            for part in (task.result() for task in waiting):
                delays.found_h += part.found_h
                delays.recovered_h += part.recovered_h
                delays.again += part.again
            figures = delays.figures()
            name = f"{profile} {100 * share:g} %"
            say(f"{name} broken: " + ", ".join(f"{key} {one:.4g}" for key, one in figures.items()))
            document[name] = {
                key: round(one, 2) if math.isfinite(one) else None for key, one in figures.items()
            }
            if share == TARGET and figures["found_24h_percent"] < FOUND_PERCENT:
                misses.append(f"{name}: {figures['found_24h_percent']:.1f} % found in 24 h")
    document |= {"failed_targets": len(misses), "misses": misses, **_cost()}
    sys.stdout.write(json.dumps(document) + "\n")
    return 1 if misses else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--years", type=float, default=YEARS)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    return parser.parse_args()


def _cost() -> Mapping[str, float]:
    """Return the CPU time of a run with its encoding, and the longest record of a profile."""
    record = QualityRecord()
    canary = PROFILES["tools"][1][0]
    runs = 5000
    began = time.process_time()
    longest = 0
    for number in range(runs):
        count_verdict(record, "genesis", canary, PASSED, number * HOUR_S)
        longest = max(longest, len(encode_quality(record)))
    took = time.process_time() - began
    return {"run_and_encode_us": round(1e6 * took / runs, 1), "record_bytes": longest}


if __name__ == "__main__":
    sys.exit(main())
