"""Rules about what the prober measures: slow, wrong, not measured.

The detectors have judged already (`speed.detector`, `speed.quality_record`, `speed.probe_schedule`):
a rule reads from their reports whether they have reported a loss that has not ended.
"""

from collections.abc import Iterable
from typing import Final

from appliance.alerts.watchdog_rules.serving_state import ServingState, serving_state
from appliance.alerts.watchdog_rules.snapshot import BoxLook, ProfileLook
from appliance.alerts.watchdog_rules.watchdog_memory import WatchdogMemory
from appliance.alerts.watchdog_rules.watchdog_rule import bad, profile_subject, signed
from appliance.model.alerts import AlertRule, Finding
from appliance.model.measurements import EventKind, MeasurementEvent
from appliance.speed.causes import command_for, rates
from appliance.speed.speeds import SeriesSpeed
from appliance.status.speed_row import change_text

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
            yield _slow(profile.name, lost, look.unix_s)
            continue
        is_judged = any(one.phase in _JUDGED for one in series)
        yield signed(AlertRule.SLOW, profile_subject(profile.name), is_good=is_judged or None)


def _slow(name: str, lost: list[SeriesSpeed], now_unix_s: float) -> Finding:
    events = [_event(name, one, now_unix_s) for one in lost]
    first, *others = events
    return bad(
        AlertRule.SLOW,
        profile_subject(name),
        f"slow: {rates(first)}" if rates(first) else "slow",
        details=("" if first.change is None else change_text(first.change), *map(rates, others)),
        likely=first.likely or "unknown",
        command=command_for(first.cause, name),
        since_unix_s=first.since_unix_s,
    )


def _event(name: str, speed: SeriesSpeed, now_unix_s: float) -> MeasurementEvent:
    """Return the loss as the event that told it, in tokens a second."""
    factor = speed.tokens_per_step
    return MeasurementEvent(
        unix_s=now_unix_s,
        profile=name,
        kind=EventKind.REGRESSION,
        series=speed.series,
        change=speed.change,
        cause=speed.cause,
        rate=None if speed.rate is None else speed.rate * factor,
        baseline=None if speed.baseline is None else speed.baseline * factor,
        since_unix_s=speed.since_unix_s,
        likely=speed.cause_text,
    )


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
