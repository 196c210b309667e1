"""Simulated box of an ordinary life: what the watchdog would see at any moment, and what is planted in it.

A box is a base look on which all is well, changed by *effects* that begin and end. An effect with a
`planted` incident is a fault that people must be told of once; all others are ordinary, and nobody is told.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from appliance.alerts.snapshot import BoxLook, UnitLook, WatchLook
from appliance.model.alerts import AlertRule, Subject, SubjectKind
from appliance.model.names import unit_of
from appliance.model.observed import ActiveState
from appliance.model.words import Mark
from tests.fakes.looks import box_look, gpu_look, profile_look, unit_look

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0
LIVE: Final = "genesis"
STANDBY: Final = "aeon"
RETIRED: Final = "oldmix"
SMALL: Final = "smol"
"""Live profile without a GPU, beside whichever large one serves."""
CARDS: Final = ("GPU-0", "GPU-1")
WIKI: Final = "wiki"
"""Watched service on another machine."""
MIRROR: Final = "mirror"
"""Another one."""
NAS: Final = "nas"
"""Watched unit of this box, which a planned window takes down each night."""

Change = Callable[[BoxLook, float], BoxLook]
"""Change of a look by an effect, with the age of the effect in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Incident that people must be told of."""

    subject: Subject
    rule: AlertRule
    flaps: bool = False
    """Whether it comes and goes, so that one message says that instead of many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect on a box from one moment to another, in seconds since the begin of the month."""

    name: str
    begin_s: float
    end_s: float
    change: Change | None = None
    """None: the box is away: off or asleep."""
    planted: Planted | None = None
    is_boot: bool = False
    """Whether a time away ends with a boot; otherwise it was asleep."""
    is_offline: bool = False
    """Whether no other machine is reached meanwhile."""
    silences: bool = False
    """Whether an operator silences the live model for it."""
    acks: bool = False
    """Whether an operator acks what is told of it, soon."""


def profile_of(name: str) -> Subject:
    return Subject(kind=SubjectKind.PROFILE, name=name)


def base_look() -> BoxLook:
    """Return the box on which all is well, with what is left of a retired model."""
    leftover = UnitLook(
        unit=unit_of(RETIRED),
        active=ActiveState.FAILED,
        sub="failed",
        result="start-limit-hit",
        restarts=5,
    )
    return box_look(
        profile_look(LIVE, gpus=CARDS),
        profile_look(SMALL, gpus=(), is_on_gpu=None, held_bytes=None, needs_bytes=None),
        profile_look(STANDBY, mark=Mark.STANDBY, **_stopped(STANDBY), gpus=CARDS),
        profile_look(
            RETIRED,
            mark=Mark.RETIRED,
            desired=True,
            state="failed",
            unit=leftover,
            answers=None,
            drift=("- Restart=always",),
            patch_applied=False,
            gpus=CARDS,
        ),
        gpus=tuple(gpu_look(uuid=card, index=n) for n, card in enumerate(CARDS)),
        watches=(
            WatchLook(name=WIKI, mark=Mark.LIVE, is_up=True, host="wiki.example"),
            WatchLook(name=MIRROR, mark=Mark.RETIRED, is_up=False, host="mirror.example"),
            WatchLook(name=NAS, mark=Mark.LIVE, is_up=True),
        ),
    )


def _stopped(name: str) -> Mapping[str, Any]:
    unit = unit_look(unit_of(name), active=ActiveState.INACTIVE, sub="dead", main_pid=0)
    return {
        "desired": False,
        "state": "stopped",
        "unit": replace(unit, is_filtered=None),
        "answers": None,
        "is_on_gpu": None,
        "patch_applied": None,
        "speed": None,
    }
