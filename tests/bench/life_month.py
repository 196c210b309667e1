"""Month of an ordinary life: its effects in local time, through quiet hours, a DST change and an outage."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from appliance.model.alerts import AlertRule
from tests.bench.life_incidents import (
    INCIDENT_RULES,
    ORDINARY,
    MakeEffects,
    flapping,
    incident_of,
    nightly_backup,
    outage,
    reboot,
)
from tests.bench.life_world import DAY_S, HOUR_S, MINUTE_S, Effect

ZONE: Final = "Europe/Rome"
BACKUP_AT: Final = "03:00"
BACKUP_MINUTES: Final = 60
_SLOTS: Final = (8, 11, 14, 17, 20, 23, 2, 5)
"""Local hours at which something may begin; it is over within three."""
_DAYTIME: Final = (8, 11, 14, 17)
"""Hours of slots that end before the quiet hours, which begin at 22:00."""
_OUTAGE_S: Final = 9 * HOUR_S
_BEGINNINGS: Final = (
    datetime(2026, 3, 15),  # noqa: DTZ001 - local time; the clocks go forward on the 29th
    datetime(2026, 10, 10),  # noqa: DTZ001 - and back on the 25th
    datetime(2026, 6, 1),  # noqa: DTZ001
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """Effects of some days."""

    begin_unix_s: float
    days: int
    effects: Sequence[Effect]
    """By the moment at which they begin."""


def month(seed: int, days: int = 30) -> Month:
    """Return a month with an incident of every rule; in fewer days, of as many as fit."""
    chance = random.Random(seed)  # noqa: S311
    first_day = _BEGINNINGS[seed % len(_BEGINNINGS)]
    begin_unix_s = _unix_s(first_day, 0)
    slots = [(day, hour) for day in range(days) for hour in _SLOTS]
    chance.shuffle(slots)
    night = days // 2
    """Night of the outage, in which only incidents of the box itself are planted."""
    slots = [slot for slot in slots if not _is_at_night(slot, night)]
    makers = _makers(chance)
    effects: list[Effect] = []
    for day, hour in slots:
        at_s = _unix_s(first_day + timedelta(days=day), hour) - begin_unix_s
        at_s += chance.uniform(0, 15) * MINUTE_S
        make = _next(makers, hour, chance)
        effects += make(at_s, chance)
    for day in range(days):
        at_s = _unix_s(first_day + timedelta(days=day), 3) - begin_unix_s
        effects += nightly_backup(at_s + 5 * MINUTE_S, chance)
    night_s = _unix_s(first_day + timedelta(days=night), 22) - begin_unix_s
    effects += outage(night_s, _OUTAGE_S)
    effects += incident_of(AlertRule.GPU_LOST)(night_s + HOUR_S, chance)
    effects += incident_of(AlertRule.LIVE_DOWN)(night_s + 4 * HOUR_S, chance)
    effects += reboot(days * DAY_S - HOUR_S, chance)
    ordered = sorted(effects, key=lambda effect: effect.begin_s)
    return Month(begin_unix_s=begin_unix_s, days=days, effects=ordered)


def _makers(chance: random.Random) -> list[MakeEffects]:
    """Return the incidents to plant, each twice; the rest of a month is ordinary."""
    makers = [incident_of(rule) for rule in INCIDENT_RULES] * 2 + [flapping] * 2
    chance.shuffle(makers)
    return makers


def _next(makers: list[MakeEffects], hour: int, chance: random.Random) -> MakeEffects:
    """Return what begins in a slot; an incident only by day, when warnings are told at once."""
    if makers and hour in _DAYTIME and chance.random() < 0.6:
        return makers.pop()
    return chance.choice(ORDINARY)


def _is_at_night(slot: tuple[int, int], night: int) -> bool:
    """Tell whether a slot lies in the outage of a night, or so that it reaches into it."""
    day, hour = slot
    return (day == night and hour >= 20) or (day == night + 1 and hour <= 5)


def _unix_s(day: datetime, hour: int) -> float:
    return day.replace(hour=hour, tzinfo=ZoneInfo(ZONE)).timestamp()
