"""Rules about an engine that serves, but badly: no progress, slow, wrong answers, no valid probe.

An engine that makes no progress is found whatever it says of itself:

============================================================  =======
requests in flight, and                                       finding
============================================================  =======
no byte and no CPU time for 30 s                              bad
the same, but a GPU of the profile works                      unknown, at most 120 s long
no byte for 120 s, and all its GPUs have spun for 60 s        bad
bytes or CPU time in the last 30 s, or its start in the last  good
minute
figures are missing                                           unknown
============================================================  =======

Without a request in flight nothing is owed: an engine that uses a CPU is well, of an idle one nothing
can be told, so that a stall does not end because its clients have given up. A GPU "spins" where it is
busy without moving memory or drawing power: the kernels of a deadlock between several GPUs do, and
their processes use a whole CPU each meanwhile. No gauge of an engine is read: frozen ones tell
that nothing runs (vLLM issue 51921).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from appliance.alerts.rule import (
    CANARIES,
    CRITICAL,
    ENGINE_CAUSES,
    OF_PROFILE,
    PROBE,
    SCHEDULE,
    STATUS_OF_ENGINE,
    STOP,
    STOP_OR_BOOT,
    SUPERVISOR_DOWN,
    UNITS,
    WARNING,
    OutsideCause,
    Rule,
    bad,
    good,
    profile_subject,
    signed,
)
from appliance.alerts.serving_state import (
    ServingState,
    is_out,
    serving_state,
)
from appliance.alerts.snapshot import BoxLook, GpuLook, ProfileLook
from appliance.alerts.watchdog_memory import (
    LOW_POWER,
    SPIN_MEMORY_SHARE,
    WatchdogMemory,
)
from appliance.model.alerts import AlertRule, Finding
from appliance.model.speeds import SeriesSpeed
from appliance.speed.causes import command_for, loss_rates
from appliance.status.speed_figures import change_text
from appliance.status.stalls import STALLED_AFTER_S, requests_text, stall_of, stall_words

_RULE: Final = AlertRule.NO_PROGRESS
EXCUSED_S: Final = 120.0
"""Longest time for which the work of a GPU excuses an engine without CPU time: an engine uses some with
each launch, and a launch lasts seconds. A GPU that is shared may work for somebody else."""
SPUN_S: Final = 60.0
"""Two readings of the GPUs, which are 30 s apart, and one more."""
_YOUNG_S: Final = 2 * STALLED_AFTER_S
"""Age of a process up to which it counts as well: two looks with a status document of its own."""
_IDLE_SHARE: Final = 0.1
_ENGINES: Final = frozenset({ServingState.SERVING, ServingState.BUSY, ServingState.DEAF})


def judge_progress(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge every profile."""
    gpus = {gpu.uuid: gpu for gpu in look.gpus or ()}
    for profile in look.profiles.values():
        subject = profile_subject(profile.name)
        if serving_state(profile) not in _ENGINES:
            yield signed(_RULE, subject, is_good=is_out(profile))
            continue
        own = [gpus[uuid] for uuid in profile.gpus if uuid in gpus]
        fact = _stall(profile, own, memory)
        if fact:
            yield bad(
                _RULE,
                subject,
                fact,
                details=_evidence(profile, own),
                since_unix_s=look.unix_s - (profile.quiet_s or 0.0),
                command=f"appliance restart {profile.name}",
            )
        elif _is_alive(profile) or _is_young(profile, look):
            yield good(_RULE, subject)
        else:
            yield signed(_RULE, subject, is_good=None)


def _stall(profile: ProfileLook, gpus: Sequence[GpuLook], memory: WatchdogMemory) -> str:
    """Return the fact about an engine that makes no progress; empty: nothing shows that."""
    if profile.in_flight is None or profile.quiet_s is None:
        return ""
    found = stall_of(profile.in_flight, profile.quiet_s, profile.idle_s)
    if found is not None:
        works = found.quiet_s < EXCUSED_S and any(_works(gpu, memory) for gpu in gpus)
        return "" if works else stall_words(found)
    if profile.in_flight > 0 and profile.quiet_s >= EXCUSED_S and _all_spin(gpus, memory):
        requests = requests_text(profile.in_flight)
        return f"no progress: {requests} in flight, no byte for {profile.quiet_s:.0f} s, GPU spins"
    return ""


def _is_alive(profile: ProfileLook) -> bool:
    """Tell whether bytes or CPU time are recent.

    An engine that thawed may answer what it owed between two looks, and use little CPU for that.
    """
    owes = (profile.in_flight or 0) > 0
    signs = (profile.quiet_s if owes else None, profile.idle_s, profile.answered_s)
    return any(sign_s is not None and sign_s < STALLED_AFTER_S for sign_s in signs)


def _is_young(profile: ProfileLook, look: BoxLook) -> bool:
    """Tell whether the engine has begun so lately that a stall was that of the process before it."""
    return profile.began_s is not None and look.monotonic_s - profile.began_s < _YOUNG_S


def _works(gpu: GpuLook, memory: WatchdogMemory) -> bool:
    """Tell whether a GPU computes: it moves memory, or draws power; where neither is known, it is busy."""
    if gpu.busy_share is None or gpu.busy_share < _IDLE_SHARE:
        return False
    if gpu.memory_busy_share is not None and gpu.memory_busy_share > SPIN_MEMORY_SHARE:
        return True
    record = memory.gpu(gpu)
    if gpu.power_w is not None and record is not None and record.most_power_w is not None:
        return gpu.power_w >= LOW_POWER * record.most_power_w
    return gpu.memory_busy_share is None


def _all_spin(gpus: Sequence[GpuLook], memory: WatchdogMemory) -> bool:
    records = [memory.gpu(gpu) for gpu in gpus]
    return bool(records) and all(
        record is not None
        and record.spinning_since_s is not None
        and memory.monotonic_s - record.spinning_since_s >= SPUN_S
        for record in records
    )


def _evidence(profile: ProfileLook, gpus: Sequence[GpuLook]) -> Iterable[str]:
    if profile.answers:
        yield "its health path answers all the same"
    for gpu in gpus:
        if gpu.busy_share is not None:
            power = "" if gpu.power_w is None else f", {gpu.power_w:.0f} W"
            yield f"GPU {gpu.index}: {gpu.busy_share:.0%} busy{power}"


_REPORTED: Final = frozenset({"regressed", "recovering"})
_JUDGED: Final = frozenset({"healthy", "confirming", "dwelling", "learning"})
"""Phases of a detector that reports no loss: with `learning` a person has accepted a new level."""


def judge_speed(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether a loss of speed is reported."""
    del memory
    for profile in look.profiles.values():
        series = () if profile.speed is None else profile.speed.series
        lost = [one for one in series if one.phase in _REPORTED]
        if lost:
            yield _slow(profile.name, lost)
            continue
        is_judged = any(one.phase in _JUDGED for one in series)
        yield signed(AlertRule.SLOW, profile_subject(profile.name), is_good=is_judged or None)


def _slow(name: str, lost: list[SeriesSpeed]) -> Finding:
    first, *others = lost
    rates = _rates(first)
    return bad(
        AlertRule.SLOW,
        profile_subject(name),
        f"slow: {rates}" if rates else "slow",
        details=("" if first.change is None else change_text(first.change), *map(_rates, others)),
        likely=first.cause_text or "unknown",
        command=command_for(first.cause, name),
        since_unix_s=first.since_unix_s,
    )


def _rates(speed: SeriesSpeed) -> str:
    """Return the rate and its baseline, in tokens a second."""
    tok_s, baseline_tok_s = (
        None if rate is None else rate * speed.tokens_per_step
        for rate in (speed.rate, speed.baseline)
    )
    return loss_rates(speed.series, tok_s, baseline_tok_s)


def judge_quality(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether a loss of quality is reported."""
    del memory
    for profile in look.profiles.values():
        subject = profile_subject(profile.name)
        share = None if profile.speed is None else profile.speed.quality_pass_rate
        if not profile.quality_lost:
            yield signed(AlertRule.QUALITY, subject, is_good=None if share is None else True)
            continue
        passed = () if share is None else (f"{share:.0%} of the last canaries passed",)
        yield bad(
            AlertRule.QUALITY,
            subject,
            "answers wrongly: fewer canaries pass than usual",
            details=passed,
            command=f"appliance history {profile.name}",
        )


def judge_probes(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether a probe has been valid lately."""
    del memory
    for profile in look.profiles.values():
        subject, report = profile_subject(profile.name), profile.speed
        if report is not None and report.silence:
            yield bad(
                AlertRule.NO_PROBE,
                subject,
                "cannot be measured",
                details=(report.silence,),
                command=f"appliance probe {profile.name}",
            )
        else:
            yield signed(AlertRule.NO_PROBE, subject, is_good=_is_measured(profile))


def _is_measured(profile: ProfileLook) -> bool | None:
    """Tell whether a profile that serves has been measured; None: it is too early to tell."""
    is_serving = serving_state(profile) is ServingState.SERVING
    report = profile.speed
    return (is_serving and report is not None and report.last_valid_unix_s is not None) or None


RULES: Final = (
    Rule(
        rule=AlertRule.NO_PROGRESS,
        subjects=OF_PROFILE,
        severity=CRITICAL,
        bad_looks=2,
        of_looks=3,
        # Not by the GPUs, which excuse alone: a box may have none, and a hung driver freezes engines.
        judged_by=(UNITS, STATUS_OF_ENGINE),
        ends=STOP_OR_BOOT,
        inhibited_by=ENGINE_CAUSES | {OutsideCause.OPERATION},
        over="answers again",
        command="appliance restart NAME",
        judge=judge_progress,
        source="the gateway's requests and bytes, CPU time of the unit, NVML's utilisation and power",
    ),
    Rule(
        rule=AlertRule.SLOW,
        subjects=OF_PROFILE,
        severity=WARNING,
        good_looks=1,
        judged_by=(PROBE,),
        ends=STOP,
        inhibited_by=ENGINE_CAUSES,
        over="is as fast as before",
        command="appliance history NAME",
        judge=judge_speed,
        source="detector of regressions",
    ),
    Rule(
        rule=AlertRule.QUALITY,
        subjects=OF_PROFILE,
        severity=WARNING,
        good_looks=1,
        judged_by=(CANARIES,),
        ends=STOP,
        inhibited_by=ENGINE_CAUSES,
        over="answers rightly again",
        command="appliance status NAME",
        judge=judge_quality,
        source="pass rates of the canaries",
    ),
    Rule(
        rule=AlertRule.NO_PROBE,
        subjects=OF_PROFILE,
        severity=WARNING,
        good_looks=1,
        judged_by=(SCHEDULE,),
        ends=STOP,
        inhibited_by=SUPERVISOR_DOWN | ENGINE_CAUSES,
        over="is measured again",
        command="appliance probe NAME",
        judge=judge_probes,
        source="schedule of the probes",
    ),
)
