"""Simulated box whose speed is probed: healthy changes, disturbances, and at times a real loss.

Everything multiplies the speed; sizes below are natural logarithms. Their sources are public series of
boxes with two and four RTX 3090:

session     level about which a run of the backend stays; 0.4 to 1.5 % between runs
cold        up to 4 % faster after a start, gone within the hour
first       the first requests after a start are slower, by 5 to 50 %
day         daily cycle of 1.5 %, skewed, and not the same each day; a yearly one of 1 %
drift       level of days: 0.5 %, correlated over five of them; of hours: 0.3 %
noise       repeat CV of 0.5 to 2 %, with heavier tails than normal
traffic     other requests: about 45 s, 10 to 60 % slower, 1 to 2 % of all minutes
dip         other load: 3 to 30 min, 5 to 50 % slower, once a week
busy        no probe for one to six hours, once a month

A world is the same each time for its name, whatever is measured in it.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

DAY_MIN: Final = 1440.0
SLOT_MIN: Final = 15.0

Event = Literal["restart", "accept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Climate:
    """Parameters of worlds."""

    session_sd: float = 0.006
    cv: float | None = None
    """Repeat CV; None: 0.5 to 2 %, drawn for each world."""
    traffic: float | None = None
    """Share of minutes with other requests; None: 1 to 2 %, drawn for each world."""
    day_cycle: float = 0.015
    restart_days: float = 10.0
    """Mean days between restarts."""
    accept_days: float | None = 45.0
    """Mean days between accepted changes of configuration; None: there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Real loss of speed, for a while."""

    begin_min: float
    end_min: float
    drop: float
    at_restart: bool
    """Whether a restart brings it, and another one ends it."""


@dataclass(frozen=True, slots=True)
class _Session:
    begin_min: float
    level: float
    cold: float
    down_min: float


@dataclass(slots=True)
class _Intervals:
    """Disjoint intervals in order, each with a depth."""

    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    depths: list[float] = field(default_factory=list)

    @classmethod
    def drawn(
        cls,
        rng: random.Random,
        end_min: float,
        *,
        mean_gap_min: float,
        length: Callable[[], float],
        depth: Callable[[], float],
    ) -> "_Intervals":
        intervals, now = cls(), 0.0
        while (now := now + rng.expovariate(1 / mean_gap_min)) < end_min:
            intervals.begins.append(now)
            now += length()
            intervals.ends.append(now)
            intervals.depths.append(depth())
        return intervals

    def depth_at(self, minute: float) -> float | None:
        """Return the depth of the interval that covers the minute; None: none covers it."""
        index = bisect_right(self.begins, minute) - 1
        return self.depths[index] if index >= 0 and minute <= self.ends[index] else None

    def touches(self, begin_min: float, end_min: float) -> bool:
        index = bisect_right(self.begins, end_min) - 1
        return index >= 0 and self.ends[index] >= begin_min


class ProbeWorld:
    """One box over some days, with its schedule of probes."""

    def __init__(
        self, name: str, days: int, climate: Climate | None = None, loss: Loss | None = None
    ) -> None:
        rng = random.Random(f"probe world {name}")  # noqa: S311
        self.climate = climate or Climate()
        self.loss = loss
        self.days = days
        self.end_min = days * DAY_MIN
        cv, traffic = self.climate.cv, self.climate.traffic
        self.cv = math.exp(rng.uniform(math.log(0.005), math.log(0.02))) if cv is None else cv
        self.traffic_share = rng.uniform(0.01, 0.02) if traffic is None else traffic
        self._day_phase, self._year_phase = (rng.uniform(0, 2 * math.pi) for _ in range(2))
        self._day_sizes = [rng.uniform(0.5, 1.0) for _ in range(days + 2)]
        self._days = _wander(rng, days + 2, sd=0.005, steps=5.0)
        self._hours = _wander(rng, int(self.end_min / SLOT_MIN) + 2, sd=0.003, steps=60 / SLOT_MIN)
        self.events = self._drawn_events(rng)
        self._sessions = self._drawn_sessions(rng)
        self._session_begins = [session.begin_min for session in self._sessions]
        self._traffic = _Intervals.drawn(
            rng,
            self.end_min,
            mean_gap_min=0.7 / self.traffic_share,
            length=lambda: min(3.0, rng.expovariate(1 / 0.75)),
            depth=lambda: math.log(1 - rng.uniform(0.10, 0.60)),
        )
        self._dips = _Intervals.drawn(
            rng,
            self.end_min,
            mean_gap_min=7 * DAY_MIN,
            length=lambda: rng.uniform(3, 30),
            depth=lambda: math.log(1 - rng.uniform(0.05, 0.50)),
        )
        self._busy = _Intervals.drawn(
            rng,
            self.end_min,
            mean_gap_min=30 * DAY_MIN,
            length=lambda: rng.uniform(60, 360),
            depth=lambda: 0.0,
        )
        self.schedule = self._drawn_schedule(random.Random(f"probe schedule {name}"))  # noqa: S311
        """Minute and rate of each scheduled probe; None: it could not be taken."""

    def _drawn_events(self, rng: random.Random) -> list[tuple[float, Event]]:
        events: list[tuple[float, Event]] = []
        now, loss = 0.0, self.loss
        while (
            now := now + rng.expovariate(1 / (self.climate.restart_days * DAY_MIN))
        ) < self.end_min:
            events.append((now, "restart"))
        if self.climate.accept_days is not None:
            mean, now = self.climate.accept_days * DAY_MIN, 0.0
            while (now := now + max(3 * DAY_MIN, rng.expovariate(1 / mean))) < self.end_min:
                events.append((now, "accept"))
        if loss is not None and loss.at_restart:
            events += [(loss.begin_min, "restart"), (loss.end_min, "restart")]
        return sorted(events)

    def _drawn_sessions(self, rng: random.Random) -> list[_Session]:
        sd = self.climate.session_sd
        speed = math.log(rng.uniform(30, 200))
        sessions = [_Session(0.0, speed, 0.0, 0.0)]
        for minute, event in self.events:
            if event == "accept":
                speed += math.log(rng.uniform(0.7, 1.5))
            off = max(-2.5 * sd, min(2.5 * sd, rng.gauss(0, sd)))
            sessions.append(_Session(minute, speed + off, rng.uniform(0, 0.04), rng.uniform(2, 6)))
        return sessions

    def _drawn_schedule(self, rng: random.Random) -> list[tuple[float, float | None]]:
        first = rng.uniform(0, SLOT_MIN)
        minutes = [
            slot * SLOT_MIN + first + rng.uniform(0, 1)
            for slot in range(int(self.end_min / SLOT_MIN) - 1)
        ]
        return [
            (minute, None if rng.random() < 0.02 else self.rate_at(minute, rng))
            for minute in minutes
        ]

    def rate_at(self, minute: float, rng: random.Random) -> float | None:
        """Return the rate that a probe measures; None: it cannot be taken."""
        if minute >= self.end_min or self._is_busy(minute):
            return None
        session = self._sessions[bisect_right(self._session_begins, minute) - 1]
        age_min = minute - session.begin_min
        if age_min < session.down_min:
            return None
        level = session.level + session.cold * math.exp(-age_min / 25)
        if session.begin_min and age_min < session.down_min + 2:
            level += math.log(rng.uniform(0.5, 0.95))
        level += self._slow_changes(minute) + self.cv * _heavy_tailed(rng)
        if rng.random() < 0.001:
            level += rng.uniform(0.05, 0.15)
        level += (self._traffic.depth_at(minute) or 0.0) + (self._dips.depth_at(minute) or 0.0)
        if self.loss is not None and self.loss.begin_min <= minute < self.loss.end_min:
            level += math.log(1 - self.loss.drop)
        return math.exp(level)

    def _is_busy(self, minute: float) -> bool:
        """Tell whether probes are impossible; not about a loss, so that its delay is well defined."""
        loss = self.loss
        if loss is not None and loss.begin_min - 360 <= minute <= loss.end_min + DAY_MIN:
            return False
        return self._busy.depth_at(minute) is not None

    def _slow_changes(self, minute: float) -> float:
        day = minute / DAY_MIN
        angle = 2 * math.pi * day + self._day_phase
        cycle = self._day_sizes[int(day)] * math.sin(angle + 0.5 * math.sin(angle))
        year = 0.010 * math.sin(2 * math.pi * day / 365 + self._year_phase)
        slow = self.climate.day_cycle * cycle + year
        return slow + _between(self._days, day) + _between(self._hours, minute / SLOT_MIN)

    def dip_within(self, minute: float, before_min: float) -> bool:
        """Tell whether other load lasted into the minutes before."""
        return self._dips.touches(minute - before_min, minute)


def _wander(rng: random.Random, count: int, *, sd: float, steps: float) -> list[float]:
    """Return a series that forgets its past over `steps` steps."""
    keep = math.exp(-1 / steps)
    series = [rng.gauss(0, sd)]
    for _ in range(count):
        series.append(keep * series[-1] + math.sqrt(1 - keep**2) * rng.gauss(0, sd))
    return series


def _between(series: Sequence[float], position: float) -> float:
    index = int(position)
    share = position - index
    return series[index] * (1 - share) + series[index + 1] * share


def _heavy_tailed(rng: random.Random) -> float:
    """Return a draw of Student's t with five degrees of freedom, scaled to a deviation of 1."""
    squares = sum(rng.gauss(0, 1) ** 2 for _ in range(5))
    return math.sqrt(3 / 5) * rng.gauss(0, 1) / math.sqrt(squares / 5)
