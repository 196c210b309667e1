"""Engines that make no progress: rows of figures, and the course of a freeze."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.alerts.rules import findings
from appliance.alerts.snapshot import BoxLook, GpuLook
from appliance.alerts.watchdog_memory import WatchdogMemory
from appliance.model.alerts import AlertRule, Finding, Sign
from appliance.model.observed import ActiveState
from appliance.model.speeds import SeriesSpeed, SpeedReport
from appliance.model.words import Series
from tests.fakes.looks import (
    CARD,
    NOW,
    box_look,
    gpu_look,
    later,
    looked,
    of_rule,
    profile_look,
    signs_of,
    speed_look,
    unit_look,
)

UNIT = "appliance-backend-genesis.service"
GOOD, BAD, UNKNOWN = Sign.GOOD, Sign.BAD, Sign.UNKNOWN
IDLE_GPU = gpu_look(busy_share=0.0, memory_busy_share=0.0, power_w=25.0)
SPINNING = gpu_look(busy_share=1.0, memory_busy_share=0.0, power_w=110.0)
FROZEN: dict[str, Any] = {"in_flight": 3, "quiet_s": 31.0, "idle_s": 31.0}


def judged(looks: list[BoxLook]) -> Finding:
    return of_rule(looked(looks), AlertRule.NO_PROGRESS)["profile:genesis"]


def owing(gpu: GpuLook | None = IDLE_GPU, **figures: Any) -> BoxLook:
    """Look at a profile with these figures; an earlier one saw its GPU at work."""
    return later(box_look(profile_look(**figures), gpus=None if gpu is None else (gpu,)), 10)


@pytest.mark.parametrize(
    ("figures", "sign"),
    [
        (FROZEN, BAD),
        (FROZEN | {"in_flight": 1}, BAD),
        (FROZEN | {"answers": False}, BAD),
        (FROZEN | {"in_flight": 0}, UNKNOWN),  # nothing is owed, and nothing proves work
        (FROZEN | {"in_flight": None}, UNKNOWN),
        (FROZEN | {"quiet_s": None}, UNKNOWN),
        (FROZEN | {"quiet_s": 29.0}, GOOD),  # a byte came
        (FROZEN | {"idle_s": 29.0}, GOOD),  # a long prefill, a deep queue
        (FROZEN | {"idle_s": 0.0, "quiet_s": 600.0}, GOOD),
        (FROZEN | {"idle_s": None}, UNKNOWN),
        (FROZEN | {"idle_s": None, "quiet_s": 2.0}, GOOD),
        ({"in_flight": 0, "quiet_s": None, "idle_s": 3.0}, GOOD),
        (FROZEN | {"idle_s": None, "quiet_s": 30.0}, UNKNOWN),
        ({"in_flight": 0, "quiet_s": None, "idle_s": 30.0}, UNKNOWN),
        ({"in_flight": 0, "quiet_s": None, "idle_s": 9000.0}, UNKNOWN),  # an idle engine
        ({"in_flight": 0, "quiet_s": 1.0, "idle_s": 9000.0}, UNKNOWN),
        # it thawed: what it owed came between two looks, for little CPU
        ({"in_flight": 0, "quiet_s": None, "idle_s": 9000.0, "answered_s": 10.0}, GOOD),
        ({"in_flight": 0, "quiet_s": None, "idle_s": 9000.0, "answered_s": 30.0}, UNKNOWN),
        (FROZEN | {"answered_s": 31.0}, BAD),
    ],
)
def test_no_byte_and_no_work_is_no_progress(figures: dict[str, Any], sign: Sign) -> None:
    """Both are needed, for 30 s, of an engine that owes bytes; its health path is no matter."""
    assert judged([box_look(), owing(**figures)]).sign is sign


@pytest.mark.parametrize(
    ("gpu", "sign_at_31_s"),
    [
        (None, BAD),
        (IDLE_GPU, BAD),
        (replace(IDLE_GPU, busy_share=None), BAD),
        (gpu_look(uuid="GPU-of-another"), BAD),
        (SPINNING, BAD),
        (gpu_look(), UNKNOWN),
        (gpu_look(busy_share=0.1), UNKNOWN),
        (gpu_look(busy_share=0.09), BAD),
        (replace(SPINNING, memory_busy_share=0.011), UNKNOWN),
        (replace(SPINNING, memory_busy_share=0.01), BAD),
        (replace(SPINNING, power_w=180.0), UNKNOWN),  # 60 % of the most
        (replace(SPINNING, power_w=179.0), BAD),
        (replace(SPINNING, power_w=290.0), UNKNOWN),  # a kernel that computes in registers
        (replace(SPINNING, memory_busy_share=None, power_w=290.0), UNKNOWN),
        (replace(SPINNING, memory_busy_share=None, power_w=110.0), BAD),
        (replace(SPINNING, memory_busy_share=None, power_w=None), UNKNOWN),  # busy is all it tells
        (replace(SPINNING, power_w=None), BAD),
    ],
)
def test_gpu_that_works_excuses_an_engine_for_two_minutes(
    gpu: GpuLook | None, sign_at_31_s: Sign
) -> None:
    """Memory activity or power are work; utilisation alone is where nothing else is told."""
    assert judged([box_look(), owing(gpu, **FROZEN)]).sign is sign_at_31_s
    longer = FROZEN | {"quiet_s": 120.0, "idle_s": 120.0}
    assert judged([box_look(), owing(gpu, **longer)]).sign is BAD


def spinning_for(seconds: float, first: GpuLook, **figures: Any) -> Finding:
    """Finding after a time in which the GPU spun and the engine used a CPU."""
    values: dict[str, Any] = {"in_flight": 1, "quiet_s": 400.0, "idle_s": 0.0}
    spins = owing(SPINNING, **(values | figures))
    return judged([box_look(gpus=(first,)), spins, later(spins, seconds)])


def test_deadlock_that_uses_the_cpu_is_found_by_its_gpu() -> None:
    """A GPU that spins for a minute, with requests that wait for two, is a hang of a busy process."""
    found = spinning_for(60, gpu_look())
    assert (found.sign, found.fact) == (
        BAD,
        "no progress: 1 request in flight, no byte for 400 s, GPU spins",
    )
    assert found.details == (
        "its health path answers all the same",
        "GPU 0: 100% busy, 110 W",
    )
    assert spinning_for(59, gpu_look()).sign is GOOD
    assert spinning_for(60, gpu_look(power_w=None)).sign is GOOD  # no power to compare with
    assert spinning_for(60, gpu_look(power_w=150.0)).sign is GOOD
    assert spinning_for(60, gpu_look(), gpus=()).sign is GOOD
    assert spinning_for(60, gpu_look(), in_flight=0).sign is GOOD
    assert spinning_for(60, gpu_look(), quiet_s=120.0).sign is BAD
    assert spinning_for(60, gpu_look(), quiet_s=119.0).sign is GOOD


def test_one_of_two_gpus_that_works_is_no_hang() -> None:
    """A hang is one of every GPU of the profile."""
    other = gpu_look(uuid="GPU-2", index=1)
    figures: dict[str, Any] = {"in_flight": 1, "quiet_s": 400.0, "gpus": (CARD, "GPU-2")}
    first = box_look(profile_look(**figures), gpus=(gpu_look(), other))
    second = later(first, 30, gpus=(SPINNING, other))
    assert judged([first, second, later(second, 90)]).sign is GOOD


@pytest.mark.parametrize(
    ("active", "desired", "sign"),
    [
        (ActiveState.ACTIVATING, True, UNKNOWN),
        (ActiveState.FAILED, True, UNKNOWN),
        (ActiveState.INACTIVE, False, GOOD),
        (ActiveState.DEACTIVATING, False, GOOD),
    ],
)
def test_engine_that_does_not_serve_owes_nothing(
    active: ActiveState, sign: Sign, *, desired: bool
) -> None:
    """A stop by hand ends it; of one that is down, another rule tells."""
    profile = profile_look(unit=unit_look(UNIT, active=active), desired=desired, **FROZEN)
    found = signs_of(looked([box_look(profile)]), AlertRule.NO_PROGRESS)
    assert found == {"profile:genesis": sign}


def test_words_of_no_progress() -> None:
    """The fact counts what waits, and the time is that of the last byte."""
    figures = FROZEN | {"quiet_s": 45.0, "answers": None}
    found = judged([box_look(), owing(replace(IDLE_GPU, power_w=None), **figures)])
    assert found.fact == "no progress: 3 requests in flight, no byte and no CPU for 31 s"
    assert found.since_unix_s == NOW + 10 - 45
    assert (found.command, found.details) == ("appliance restart genesis", ("GPU 0: 0% busy",))
    blind = judged([box_look(), owing(replace(IDLE_GPU, busy_share=None), **figures)])
    assert blind.details == ()


@pytest.mark.parametrize("phase", range(0, 10, 3))
def test_freeze_is_found_twice_within_70_s(phase: int) -> None:
    """With looks 10 s apart, two bad ones follow a freeze by less than 70 s; 10 s remain for grouping."""
    bad_at = []
    for at in range(phase, 100, 10):
        # The look after the freeze still counts CPU time of before it.
        idle_s = float(max(0, at - 10))
        found = judged([box_look(), owing(in_flight=1, quiet_s=float(at), idle_s=idle_s)])
        if found.sign is BAD:
            bad_at.append(at)
    assert bad_at[1] <= 70


def test_busy_engine_is_never_found() -> None:
    """Ten minutes of prefill with a full queue, by CPU or by GPU, find nothing."""
    _, memory = findings(box_look(), WatchdogMemory())
    for at in range(0, 600, 10):
        by_cpu: dict[str, Any] = {"in_flight": 32, "quiet_s": float(at), "idle_s": 2.0}
        # Launches that wait for a GPU asleep use little of a CPU, but some every minute or so.
        by_gpu: dict[str, Any] = {"in_flight": 32, "quiet_s": float(at), "idle_s": float(at % 100)}
        for figures in (by_cpu, by_gpu):
            look = later(box_look(profile_look(**figures)), 10.0 + at)
            found, memory = findings(look, memory)
            sign = of_rule(found, AlertRule.NO_PROGRESS)["profile:genesis"].sign
            assert sign is GOOD or (sign is UNKNOWN and figures is by_gpu)


def test_frozen_engine_is_one_alert_when_its_clients_have_left() -> None:
    """A health path that does not answer is no second fault of a stalled engine, until it has worked."""
    deaf: dict[str, Any] = {"answers": False, "in_flight": 0, "quiet_s": None, "idle_s": 90.0}
    stalled = box_look(profile_look(**FROZEN), gpus=())
    left = later(box_look(profile_look(**deaf), gpus=()), 60)
    signs = signs_of(looked([stalled, left, later(left, 10)]), AlertRule.LIVE_DOWN)
    assert signs == {"profile:genesis": UNKNOWN}
    assert signs_of(looked([left]), AlertRule.LIVE_DOWN) == {"profile:genesis": BAD}
    works = later(box_look(), 30)
    assert signs_of(looked([stalled, works, left]), AlertRule.LIVE_DOWN) == {"profile:genesis": BAD}
    failed = unit_look(UNIT, active=ActiveState.FAILED)
    down = later(box_look(profile_look(unit=failed)), 70)
    found = signs_of(looked([stalled, left, down]), AlertRule.LIVE_DOWN)
    assert found == {"profile:genesis": BAD}
    removed = later(box_look(profile_look("aeon")), 65)
    after = looked([stalled, left, removed, later(left, 20)])
    assert signs_of(after, AlertRule.LIVE_DOWN) == {"profile:genesis": BAD}


LOST = SeriesSpeed(
    series=Series.DECODE,
    phase="regressed",
    rate=20.3,
    baseline=30.75,
    change=-0.34,
    since_unix_s=NOW - 2100,
    cause="foreign-holder",
    cause_text="9.8 GiB of GPU memory held by python3 (pid 4121)",
    tokens_per_step=4 / 3,
)
LOST_PREFILL = SeriesSpeed(
    series=Series.PREFILL, phase="recovering", rate=900.0, baseline=1850.0, change=-0.51
)


def found(rule: AlertRule, **changes: Any) -> Finding:
    look = box_look(profile_look(**changes))
    return of_rule(looked([look]), rule)["profile:genesis"]


@pytest.mark.parametrize(
    ("report", "sign"),
    [
        (speed_look(), GOOD),
        (None, UNKNOWN),
        (speed_look(series=()), UNKNOWN),
        *(
            (speed_look(series=(LOST.replaced(phase=phase),)), sign)
            for phase, sign in {
                "unset": UNKNOWN,
                "learning": GOOD,
                "healthy": GOOD,
                "confirming": GOOD,
                "dwelling": GOOD,
                "regressed": BAD,
                "recovering": BAD,
            }.items()
        ),
        (speed_look(series=(LOST_PREFILL, LOST.replaced(phase="healthy"))), BAD),
    ],
)
def test_loss_that_the_detector_reports_is_slow(report: SpeedReport | None, sign: Sign) -> None:
    """A loss lasts from its report to its end; one in doubt is none."""
    assert found(AlertRule.SLOW, speed=report).sign is sign


def test_words_of_a_loss() -> None:
    """The fact has the rates in tokens, the details the size, then cause and its command."""
    one = found(AlertRule.SLOW, speed=speed_look(series=(LOST, LOST_PREFILL)))
    assert one.fact == "slow: 27.1 tok/s (was 41.0)"
    assert one.details == ("−34 %", "900 tok/s of prompts (was 1850)")  # noqa: RUF001
    assert one.likely == "9.8 GiB of GPU memory held by python3 (pid 4121)"
    assert (one.command, one.since_unix_s) == ("appliance status", NOW - 2100)


def test_loss_without_figures_is_told_all_the_same() -> None:
    """A report that an agent has just restored may have no rate and no time."""
    bare = SeriesSpeed(series=Series.DECODE, phase="regressed")
    one = found(AlertRule.SLOW, speed=speed_look(series=(bare,)))
    assert (one.sign, one.fact, one.details, one.likely) == (BAD, "slow", (), "unknown")
    assert one.command == "appliance history genesis"


@pytest.mark.parametrize(
    ("changes", "sign", "details"),
    [
        ({}, GOOD, ()),
        ({"speed": None}, UNKNOWN, ()),
        ({"speed": speed_look(quality_pass_rate=None)}, UNKNOWN, ()),
        (
            {"quality_lost": True, "speed": speed_look(quality_pass_rate=0.62)},
            BAD,
            ("62% of the last canaries passed",),
        ),
        ({"quality_lost": True, "speed": None}, BAD, ()),
    ],
)
def test_loss_of_quality_is_told(
    changes: dict[str, Any], sign: Sign, details: tuple[str, ...]
) -> None:
    """A loss that is reported is found, with the share that passed where it is known."""
    one = found(AlertRule.QUALITY, **changes)
    assert (one.sign, one.details) == (sign, details)


LOADING = unit_look("appliance-backend-genesis.service", active=ActiveState.ACTIVATING)


@pytest.mark.parametrize(
    ("changes", "sign"),
    [
        ({}, GOOD),
        ({"speed": None}, UNKNOWN),
        ({"speed": speed_look(last_valid_unix_s=None)}, UNKNOWN),
        ({"unit": LOADING}, UNKNOWN),
        ({"speed": speed_look(silence="no valid probe in 6 h of serving (9 busy)")}, BAD),
    ],
)
def test_long_silence_of_the_probes_is_told(changes: dict[str, Any], sign: Sign) -> None:
    """The schedule says when a time without a valid probe has become too long."""
    assert found(AlertRule.NO_PROBE, **changes).sign is sign
