"""Effects of an ordinary life: one incident of every rule, and what is no incident.

Each function takes the moment at which it may begin and a generator of random numbers, and returns
effects that are over within three hours.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from appliance.alerts.snapshot import (
    BoxLook,
    DiskLook,
    GpuError,
    GpuHolder,
)
from appliance.model.alerts import BOX, AlertRule, Subject, SubjectKind
from appliance.model.names import unit_of
from appliance.model.observed import ActiveState
from appliance.model.status import EndedOperationRow, OperationRow
from appliance.wire.helpers import Listener
from tests.bench.life_world import (
    CARDS,
    HOUR_S,
    LIVE,
    MINUTE_S,
    NAS,
    STANDBY,
    WIKI,
    Change,
    Effect,
    Planted,
    profile_of,
)
from tests.fakes.looks import GIB, speed_look

MakeEffects = Callable[[float, random.Random], Sequence[Effect]]
_CARD: Final = Subject(kind=SubjectKind.GPU, name=CARDS[0])
_FOREIGN: Final = GpuHolder(pid=4121, name="python3", user="ana", held_bytes=9 * GIB)
_OPEN: Final = Listener(
    address="0.0.0.0",  # noqa: S104
    port=8022,
    pid=100,
    process="vllm",
    unit=unit_of(LIVE),
)


def of_profile(name: str = LIVE, **changes: Any) -> Change:
    """Return a change of a profile."""

    def change(look: BoxLook, _age_s: float) -> BoxLook:
        profile = replace(look.profiles[name], **changes)
        return replace(look, profiles={**look.profiles, name: profile})

    return change


def of_unit(name: str = LIVE, **changes: Any) -> Change:
    """Return a change of the unit of a profile."""

    def change(look: BoxLook, age_s: float) -> BoxLook:
        unit = look.profiles[name].unit
        assert unit is not None
        return of_profile(name, unit=replace(unit, **changes))(look, age_s)

    return change


def of_card(**changes: Any) -> Change:
    """Return a change of the first GPU."""

    def change(look: BoxLook, _age_s: float) -> BoxLook:
        first, *others = look.gpus or ()
        return replace(look, gpus=(replace(first, **changes), *others))

    return change


def of_watch(name: str, *, is_up: bool) -> Change:
    """Return a change of a watched service."""

    def change(look: BoxLook, _age_s: float) -> BoxLook:
        watches = tuple(
            replace(one, is_up=is_up) if one.name == name else one for one in look.watches
        )
        return replace(look, watches=watches)

    return change


def of_box(**changes: Any) -> Change:
    """Return a change of the look itself."""
    return lambda look, _age_s: replace(look, **changes)


def both(first: Change, second: Change) -> Change:
    return lambda look, age_s: second(first(look, age_s), age_s)


# ── Changes that grow with their age ────────────────────────────────────────

_FAILED: Final = both(
    of_profile(state="failed", answers=None),
    of_unit(active=ActiveState.FAILED, sub="failed", result="exit-code", is_filtered=None),
)


def _hangs(look: BoxLook, age_s: float) -> BoxLook:
    frozen = of_profile(in_flight=2, quiet_s=age_s, idle_s=age_s)
    resting = tuple(
        replace(gpu, busy_share=0.0, power_w=20.0, memory_busy_share=0.0) for gpu in look.gpus or ()
    )
    return replace(frozen(look, age_s), gpus=resting)


def _crashes(look: BoxLook, age_s: float) -> BoxLook:
    return of_unit(restarts=min(4, 1 + int(age_s // 70)))(look, age_s)


def _slows(look: BoxLook, age_s: float) -> BoxLook:
    report = look.profiles[LIVE].speed
    assert report is not None
    lost = report.series[0].replaced(
        phase="regressed",
        rate=27.1,
        change=-0.34,
        since_unix_s=look.unix_s - age_s,
        cause_text="9.0 GiB of GPU memory held by python3 (pid 4121)",
        cause="foreign-holder",
    )
    return of_profile(speed=report.replaced(series=(lost,)))(look, age_s)


def _fails_to_switch(look: BoxLook, age_s: float) -> BoxLook:
    ended = EndedOperationRow(
        id=9,
        kind="switch",
        target=(LIVE,),
        outcome="rolled-back",
        failed=True,
        finished_unix_s=look.unix_s - age_s,
    )
    return replace(look, last_operation=ended)


def _switches(phase_s: float, *, is_stuck: bool) -> Change:
    """Return a switch to the standby model whose phase takes a time, or overruns its deadline."""

    def change(look: BoxLook, age_s: float) -> BoxLook:
        running = OperationRow(
            id=8,
            kind="switch",
            target=(STANDBY,),
            profiles=(LIVE, STANDBY),
            phase="stop",
            phase_s=age_s if is_stuck else age_s % phase_s,
            deadline_s=60.0 if is_stuck else phase_s + 5,
        )
        down = of_unit(active=ActiveState.DEACTIVATING, sub="stop-sigterm", is_filtered=None)
        look = replace(down(look, age_s), operation=running)
        return of_profile(desired=False, state="stopping", answers=None)(look, age_s)

    return change


def _errs(look: BoxLook, age_s: float) -> BoxLook:
    return of_card(errors=(GpuError(xid=31, unix_s=look.unix_s - age_s),))(look, age_s)


def _without_supervisor(look: BoxLook, _age_s: float) -> BoxLook:
    """Return a look at which only the supervisor's word is missing."""
    untold = {
        name: replace(one, state=None, in_flight=None, quiet_s=None)
        for name, one in look.profiles.items()
    }
    return replace(
        look,
        supervisor_answers=False,
        operation=None,
        gpus=None,
        gpu_state=None,
        profiles=untold,
    )


def _flaps(down_s: float, up_s: float) -> Change:
    def change(look: BoxLook, age_s: float) -> BoxLook:
        is_up = age_s % (down_s + up_s) >= down_s
        return of_watch(WIKI, is_up=is_up)(look, age_s)

    return change


# ── Incidents ───────────────────────────────────────────────────────────────

_LIVE: Final = profile_of(LIVE)
_WIKI: Final = Subject(kind=SubjectKind.WATCH, name=WIKI)
_INCIDENTS: Final[Sequence[tuple[AlertRule, Subject, Change]]] = (
    (AlertRule.LIVE_DOWN, _LIVE, _FAILED),
    (AlertRule.NO_PROGRESS, _LIVE, _hangs),
    (AlertRule.CRASH_LOOP, _LIVE, _crashes),
    (AlertRule.CPU_FALLBACK, _LIVE, of_profile(is_on_gpu=False)),
    (AlertRule.SLOW, _LIVE, _slows),
    (AlertRule.QUALITY, _LIVE, of_profile(quality_lost=True)),
    (AlertRule.NO_PROBE, _LIVE, of_profile(speed=speed_look(silence="no valid probe for 6 h"))),
    (AlertRule.PATCH, _LIVE, of_profile(patch_applied=False)),
    (AlertRule.DRIFT, _LIVE, of_profile(drift=("- Restart=always", "+ Restart=no"))),
    (AlertRule.SWITCH_FAILED, _LIVE, _fails_to_switch),
    (AlertRule.SWITCH_STUCK, BOX, _switches(60.0, is_stuck=True)),
    (AlertRule.EXPOSED, _LIVE, of_box(listeners=(_OPEN,))),
    (AlertRule.FILTER_OFF, BOX, of_unit(is_filtered=False)),
    (AlertRule.FOREIGN_HOLDER, BOX, of_card(holders=(_FOREIGN,))),
    (AlertRule.UNATTRIBUTED, _CARD, of_card(unattributed_bytes=6 * GIB)),
    (AlertRule.GPU_LOST, _CARD, of_card(is_lost=True)),
    (AlertRule.GPU_ERROR, _CARD, _errs),
    (AlertRule.GPU_RECOVERY, _CARD, of_card(recovery_action="gpu-reset")),
    (AlertRule.ECC, _CARD, of_card(remap_pending=True)),
    (AlertRule.THROTTLE, _CARD, of_card(throttle_reasons=("hw_thermal_slowdown",))),
    (AlertRule.PCIE, _CARD, of_card(pcie_width=4)),
    (AlertRule.DRIVER, BOX, of_box(gpus=None, gpu_state="mismatch", gpu_problem="version 18")),
    (
        AlertRule.DISK,
        BOX,
        of_box(disks=(DiskLook(path="/var", free_bytes=GIB, total_bytes=100 * GIB),)),
    ),
    (AlertRule.SUPERVISOR_DOWN, BOX, _without_supervisor),
    (AlertRule.GATEWAY_DOWN, BOX, of_box(gateway_answers=False)),
    (AlertRule.WATCH_DOWN, _WIKI, of_watch(WIKI, is_up=False)),
)


def incident_of(rule: AlertRule) -> MakeEffects:
    """Return the maker of an incident of a rule."""
    subject, change = next((s, c) for r, s, c in _INCIDENTS if r is rule)

    def make(at_s: float, chance: random.Random) -> Sequence[Effect]:
        long_s = chance.uniform(25 * MINUTE_S, 2 * HOUR_S)
        planted = Planted(subject=subject, rule=rule)
        acks = chance.random() < 0.3
        return [
            Effect(
                name=rule.value,
                begin_s=at_s,
                end_s=at_s + long_s,
                change=change,
                planted=planted,
                acks=acks,
            )
        ]

    return make


def flapping(at_s: float, chance: random.Random) -> Sequence[Effect]:
    """Return a service that comes and goes: one message says so."""
    change = _flaps(chance.uniform(60, 90), chance.uniform(60, 90))
    planted = Planted(subject=_WIKI, rule=AlertRule.WATCH_DOWN, flaps=True)
    end_s = at_s + chance.uniform(40, 90) * MINUTE_S
    return [Effect(name="flapping", begin_s=at_s, end_s=end_s, change=change, planted=planted)]


INCIDENT_RULES: Final = tuple(rule for rule, _, _ in _INCIDENTS)


# ── No incidents ────────────────────────────────────────────────────────────


def _effect(
    name: str, at_s: float, long_s: float, change: Change | None, **more: Any
) -> Sequence[Effect]:
    return [Effect(name=name, begin_s=at_s, end_s=at_s + long_s, change=change, **more)]


def switch_and_back(at_s: float, chance: random.Random) -> Sequence[Effect]:
    """Return a switch to the standby model, its time, and the way back."""
    first_s, there_s = chance.uniform(20, 300), chance.uniform(5, 90) * MINUTE_S
    away = of_profile(desired=False, state="stopped", answers=None)
    stopped = both(
        away, of_unit(active=ActiveState.INACTIVE, sub="dead", main_pid=0, is_filtered=None)
    )
    serving = both(
        of_profile(STANDBY, desired=True, state="serving", answers=True),
        of_unit(STANDBY, active=ActiveState.ACTIVE, sub="running", main_pid=200, is_filtered=True),
    )
    begin_s = at_s + first_s
    return [
        *_effect("switch", at_s, first_s, _switches(120.0, is_stuck=False)),
        *_effect("standby serves", begin_s, there_s, both(stopped, serving)),
        *_effect("switch back", begin_s + there_s, first_s, _switches(120.0, is_stuck=False)),
    ]


def reboot(at_s: float, chance: random.Random) -> Sequence[Effect]:
    """Return a boot, after which the models load."""
    off_s, load_s = chance.uniform(30, 300), chance.uniform(30, 240)
    loading = both(
        of_profile(state="loading", answers=None),
        of_unit(active=ActiveState.ACTIVATING, sub="start", is_filtered=None),
    )
    back_s = at_s + off_s
    return [
        *_effect("off", at_s, off_s, None, is_boot=True),
        *_effect("boot", back_s, 15.0, both(_without_supervisor, of_box(gateway_answers=False))),
        *_effect("load", back_s, load_s, loading),
    ]


def suspend(at_s: float, chance: random.Random) -> Sequence[Effect]:
    """Return a sleep, after which everything takes a moment."""
    asleep_s = chance.uniform(5 * MINUTE_S, 2.5 * HOUR_S)
    slow = both(_without_supervisor, of_profile(answers=False))
    return [
        *_effect("asleep", at_s, asleep_s, None),
        *_effect("awake", at_s + asleep_s, 25.0, slow),
    ]


def _harmless(name: str, least_s: float, most_s: float, change: Change) -> MakeEffects:
    return lambda at_s, chance: _effect(name, at_s, chance.uniform(least_s, most_s), change)


def silenced(at_s: float, chance: random.Random) -> Sequence[Effect]:
    """Return work on the live model that its operator has silenced."""
    return _effect("silenced", at_s, chance.uniform(5, 100) * MINUTE_S, _FAILED, silences=True)


ORDINARY: Final[Sequence[MakeEffects]] = (
    switch_and_back,
    switch_and_back,
    reboot,
    suspend,
    silenced,
    _harmless("stop by hand", 300, 7200, both(_FAILED, of_profile(desired=False))),
    _harmless("hold", 300, 7200, both(_FAILED, both(of_profile(desired=False), of_box(hold=True)))),
    _harmless("one bad look", 1, 15, of_profile(answers=False)),
    _harmless("upgrade", 5, 19, both(_without_supervisor, of_box(gateway_answers=False))),
    _harmless("no bus", 30, 600, of_unit(is_filtered=None)),
    _harmless("no GPU reading", 30, 3600, of_box(gpus=None, gpu_state=None)),
    _harmless("short foreign holder", 5, 45, of_card(holders=(_FOREIGN,))),
    _harmless("short throttle", 60, 500, of_card(throttle_reasons=("hw_thermal_slowdown",))),
    _harmless("idle link", 600, 7200, of_card(pcie_width=4, busy_share=0.0, power_w=12.0)),
    _harmless(
        "short lack of room",
        60,
        500,
        of_box(disks=(DiskLook(path="/var", free_bytes=GIB, total_bytes=100 * GIB),)),
    ),
    _harmless("hiccup elsewhere", 1, 19, of_watch(WIKI, is_up=False)),
    _harmless("long prompts", 600, 7200, of_profile(in_flight=9, quiet_s=200.0, idle_s=0.5)),
    _harmless("standby fails", 600, 7200, of_unit(STANDBY, active=ActiveState.FAILED)),
    _harmless("no answer known", 60, 3600, of_profile(answers=None, is_on_gpu=None, speed=None)),
)
"""Makers of what nobody is to be told of."""


def nightly_backup(at_s: float, chance: random.Random) -> Sequence[Effect]:
    """Return a planned absence of a watched service."""
    return _effect("backup", at_s, chance.uniform(10, 40) * MINUTE_S, of_watch(NAS, is_up=False))


def outage(at_s: float, long_s: float) -> Sequence[Effect]:
    """Return a time in which this box reaches no other machine."""
    return _effect("offline", at_s, long_s, of_watch(WIKI, is_up=False), is_offline=True)


def all_of(makers: Iterable[MakeEffects], at_s: float, chance: random.Random) -> Sequence[Effect]:
    return [effect for make in makers for effect in make(at_s, chance)]
