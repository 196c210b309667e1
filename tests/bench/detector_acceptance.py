"""Judge of regression detectors: simulated healthy years, and episodes of real losses.

An alert in a healthy year is a nuisance if other load was there within the hour before it, else it is
false. An episode lasts twelve days, with a loss from the eighth to the eleventh; half of the losses
come with a restart. One that is on alert before its loss begins is left out.
"""

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from tests.bench.machine import percentile
from tests.bench.probe_world import DAY_MIN, Climate, Loss, ProbeWorld

DROPS: Final = (0.05, 0.10, 0.20, 0.40)
TARGETS: Final[Mapping[str, tuple[str, float]]] = {
    "alerts_per_year": ("<=", 0.1),
    "found_5_in_24h_percent": (">=", 97.0),
    "found_10_in_90min_percent": (">=", 99.0),
    "found_20_in_60min_percent": (">=", 98.0),
    "found_40_in_60min_percent": (">=", 98.0),
    "held_percent": (">=", 97.0),
    "recovery_p95_min": ("<=", 75.0),
    "extra_probes_percent": ("<=", 8.0),
}
WITHIN_MIN: Final = {0.05: DAY_MIN, 0.10: 90.0, 0.20: 60.0, 0.40: 60.0}


class Contestant(Protocol):
    """Detector as this judge drives it; all times in minutes."""

    @property
    def wake(self) -> float | None: ...

    def accept(self, t: float) -> None: ...

    def restart(self, t: float) -> None: ...

    def step(self, t: float, x: float | None) -> Sequence[tuple[str, float]]: ...


@dataclass(frozen=True, slots=True)
class Told:
    """One word of a detector."""

    minute: float
    alert: bool
    """Whether it is an alert; else it tells recovery."""


@dataclass(slots=True, kw_only=True)
class Losses:
    """Episodes of losses of one size."""

    episodes: int = 0
    held: int = 0
    """Episodes whose alert still stands at the end of the loss."""
    delays_min: list[float] = field(default_factory=list)
    recoveries_min: list[float] = field(default_factory=list)
    """Time from the end of the loss to the recovery; infinite if none was told."""

    def add(self, other: "Losses") -> None:
        self.episodes += other.episodes
        self.held += other.held
        self.delays_min += other.delays_min
        self.recoveries_min += other.recoveries_min


@dataclass(slots=True, kw_only=True)
class Record:
    """Counts of one detector over worlds; those of several seeds can be added."""

    years: float = 0.0
    false: int = 0
    nuisance: int = 0
    scheduled: int = 0
    extra: int = 0
    losses: dict[float, Losses] = field(default_factory=lambda: {d: Losses() for d in DROPS})

    def add(self, other: "Record") -> None:
        self.years += other.years
        self.false += other.false
        self.nuisance += other.nuisance
        self.scheduled += other.scheduled
        self.extra += other.extra
        for drop, losses in self.losses.items():
            losses.add(other.losses[drop])

    def figures(self) -> dict[str, float]:
        """Return the figures that have targets, and a few others."""
        figures = {
            "alerts_per_year": (self.false + self.nuisance) / self.years,
            "false": self.false,
            "nuisance": self.nuisance,
            "extra_probes_percent": 100 * self.extra / self.scheduled,
        }
        for drop, losses in self.losses.items():
            limit = WITHIN_MIN[drop]
            found = sum(delay <= limit for delay in losses.delays_min)
            within = f"{limit / 60:.0f}h" if limit == DAY_MIN else f"{limit:.0f}min"
            figures[f"found_{drop:.0%}_in_{within}_percent".replace("%", "")] = (
                100 * found / losses.episodes
            )
            figures[f"delay_{drop:.0%}_median_min".replace("%", "")] = (
                statistics.median(losses.delays_min) if losses.delays_min else math.inf
            )
        figures["held_percent"] = min(100 * x.held / x.episodes for x in self.losses.values())
        figures["recovery_p95_min"] = max(
            percentile(self.losses[drop].recoveries_min or [math.inf], 0.95) for drop in (0.2, 0.4)
        )
        return figures


def failed(figures: Mapping[str, float]) -> list[str]:
    """Return the targets that the figures miss."""
    return [
        f"{name} {figures[name]:.4g}, not {sign} {limit:g}"
        for name, (sign, limit) in TARGETS.items()
        if not (figures[name] <= limit if sign == "<=" else figures[name] >= limit)
    ]


def judge(
    make: Callable[[], Contestant], seed: str, *, years: int, episodes: int, climate: Climate
) -> Record:
    """Return the record of a detector on the worlds of one seed."""
    record = Record()
    for year in range(years):
        world = ProbeWorld(f"{seed} year {year}", 365, climate)
        told, scheduled, extra = drive(make(), world)
        alerts = [word.minute for word in told if word.alert]
        nuisance = sum(world.dip_within(minute, 60) for minute in alerts)
        record.years += 1
        record.nuisance += nuisance
        record.false += len(alerts) - nuisance
        record.scheduled += scheduled
        record.extra += extra
    for drop, losses in record.losses.items():
        for episode in range(episodes):
            world, loss = _episode(f"{seed} loss {drop} {episode}", drop, climate)
            told, _, _ = drive(make(), world)
            _judge_episode(told, loss, losses)
    return record


def drive(detector: Contestant, world: ProbeWorld) -> tuple[list[Told], int, int]:
    """Run a detector through a world; return its words, and the scheduled and further readings."""
    rng = random.Random(f"further probes {world.end_min} {world.cv}")  # noqa: S311
    told: list[Told] = []
    scheduled = extra = 0
    events = [*world.events, (math.inf, "accept")]
    upcoming = 0

    def step(minute: float, rate: float | None) -> None:
        told.extend(Told(minute, word == "ALERT") for word, _ in detector.step(minute, rate))

    detector.accept(0.0)
    for minute, rate in world.schedule:
        while True:
            event_min, event = events[upcoming]
            wake_min = math.inf if detector.wake is None else detector.wake
            if event_min <= min(minute, wake_min):
                (detector.accept if event == "accept" else detector.restart)(event_min)
                upcoming += 1
            elif wake_min < minute:
                further = world.rate_at(wake_min, rng)
                extra += further is not None
                step(wake_min, further)
            else:
                break
        if rate is not None:
            scheduled += 1
            step(minute, rate)
    return told, scheduled, extra


def _episode(name: str, drop: float, climate: Climate) -> tuple[ProbeWorld, Loss]:
    rng = random.Random(name)  # noqa: S311
    begin = 7 * DAY_MIN + rng.uniform(0, DAY_MIN)
    at_restart = rng.random() < 0.5
    loss = Loss(begin_min=begin, end_min=begin + 3 * DAY_MIN, drop=drop, at_restart=at_restart)
    return ProbeWorld(name, 12, replace(climate, accept_days=None), loss), loss


def _judge_episode(told: Sequence[Told], loss: Loss, losses: Losses) -> None:
    before = [word for word in told if word.minute < loss.begin_min]
    if before and before[-1].alert:
        return
    losses.episodes += 1
    during = [word for word in told if loss.begin_min <= word.minute < loss.end_min]
    alerts = [word.minute for word in during if word.alert]
    if not alerts:
        return
    losses.delays_min.append(alerts[0] - loss.begin_min)
    if during[-1].alert:
        losses.held += 1
        after = (word.minute for word in told if word.minute >= loss.end_min and not word.alert)
        losses.recoveries_min.append(next(after, math.inf) - loss.end_min)
