"""Rules about one profile and its unit: down, in a crash loop, on the CPU, unpatched, drifted.

A drifted unit is quoted line by line; lines whose values may be secret lose them (`without_secrets`).
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from appliance.alerts.rule import (
    ANSWER,
    CRITICAL,
    ENGINE_CAUSES,
    FILES,
    GPUS_OF_ENGINE,
    MINUTES_S,
    OF_PROFILE,
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
    GIVEN_UP,
    ServingState,
    is_out,
    serving_sign,
    serving_state,
)
from appliance.alerts.snapshot import BoxLook, ProfileLook, UnitLook
from appliance.alerts.watchdog_memory import LOOP_RESTARTS, WatchdogMemory
from appliance.model.alerts import AlertRule, Finding, Sign
from appliance.model.amounts import duration, size_of_total
from appliance.model.observed import ActiveState

_ASSIGNMENT: Final = re.compile(r"([+\- ]?\s{0,8})([A-Za-z][A-Za-z0-9]{0,63})\s{0,8}=")
_SECTION: Final = re.compile(r"[+\- ]?\s{0,8}\[[A-Za-z]{1,32}\]\s{0,8}\Z")
_MAY_BE_SECRET: Final = frozenset({"environment", "setcredential", "setcredentialencrypted"})
_COMMANDS: Final = "exec"
"""Beginning of the settings with command lines: an argument may be a key."""
_HIDDEN: Final = "…"


def without_secrets(line: str) -> str:
    """Return a line without the values of commands and environments, or of a line that continues one."""
    found = _ASSIGNMENT.match(line)
    if found is None:
        sign = line[:1] if line[:1] in {"+", "-"} else ""
        return line if _SECTION.match(line) else f"{sign}{_HIDDEN}"
    name = found[2].lower()
    if name in _MAY_BE_SECRET or name.startswith(_COMMANDS):
        return f"{found[1]}{found[2]}={_HIDDEN}"
    return line


_MOST_DRIFT: Final = 3


# ── Live, and down ──────────────────────────────────────────────────────────


def judge_serving(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether every profile that should serve does."""
    waited_s, stalled = memory.waited_s(), frozenset(memory.stalled)
    for profile in look.profiles.values():
        state = serving_state(profile)
        own_s = waited_s.get(profile.name, 0.0)
        sign = serving_sign(
            profile,
            state,
            operation=look.operation,
            waited_s=own_s,
            is_stalled=profile.name in stalled,
        )
        subject = profile_subject(profile.name)
        if sign is not Sign.BAD:
            yield signed(AlertRule.LIVE_DOWN, subject, is_good=True if sign is Sign.GOOD else None)
            continue
        yield bad(
            AlertRule.LIVE_DOWN,
            subject,
            f"down: {_down_words(profile, state, own_s)}",
            details=_unit_details(profile.unit),
            likely=profile.note,
            command=_down_command(profile, state),
        )


def _down_words(profile: ProfileLook, state: ServingState, waited_s: float) -> str:
    if state is ServingState.DEAF:
        return "its engine does not answer"
    if state is ServingState.RELOADING:
        return "it crashed, and loads again"
    if state in {ServingState.LOADING, ServingState.STOPPING}:
        return f"still {state} after {duration(waited_s)}"
    word = profile.state
    if word in {None, "serving"}:  # systemd has seen it since
        word = profile.unit.active if profile.unit else state
    if word == "failed" and profile.unit is not None and profile.unit.result == GIVEN_UP:
        return "it failed too often, and is not started again"
    return word or state


def _down_command(profile: ProfileLook, state: ServingState) -> str:
    if state is ServingState.DEAF:
        return f"appliance restart {profile.name}"
    if state is ServingState.DOWN and profile.state in {"stopped", "refused"}:
        return f"appliance start {profile.name}"
    return f"appliance logs {profile.name}"


def _unit_details(unit: UnitLook | None) -> Iterable[str]:
    if unit is None:
        return
    if not unit.loaded:
        yield "its unit is missing"
    if unit.result != "success":
        yield f"{unit.unit}: {unit.result}"
    if unit.restarts:
        yield f"restarted by systemd {unit.restarts} times since its last start"


# ── Crash loop ──────────────────────────────────────────────────────────────


def judge_crash_loops(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether a backend is restarted again and again."""
    restarts = memory.restarts()
    for profile in look.profiles.values():
        subject, unit = profile_subject(profile.name), profile.unit
        if unit is None:
            yield signed(AlertRule.CRASH_LOOP, subject, is_good=None)
            continue
        count = restarts.get(unit.unit, 0)
        has_given_up = unit.active is ActiveState.FAILED and unit.result == GIVEN_UP
        if count < LOOP_RESTARTS and not has_given_up:
            yield good(AlertRule.CRASH_LOOP, subject)
            continue
        breaker = (
            "systemd has stopped restarting it; after a repair: appliance start " + profile.name
            if has_given_up
            else "systemd still restarts it, and gives up after 5 starts in 30 min"
        )
        yield bad(
            AlertRule.CRASH_LOOP,
            subject,
            "crash loop: given up after too many starts"
            if has_given_up
            else f"crash loop: {count} restarts in 10 min",
            details=(breaker,),
            likely=profile.note,
            command=f"appliance logs {profile.name}",
        )


# ── Engine that serves, but not as its profile says ─────────────────────────


def judge_cpu_fallback(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether every model that serves lies on its GPUs."""
    del memory
    for profile in look.profiles.values():
        fact = "runs on the CPU, not on the GPUs of its profile"
        detail = _held_text(profile)
        yield _as_promised(
            AlertRule.CPU_FALLBACK, profile, is_so=profile.is_on_gpu, fact=fact, detail=detail
        )


def judge_patches(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the command that patches an engine has changed it."""
    del memory
    for profile in look.profiles.values():
        fact = "started without its patch"
        detail = "its patch command changed nothing: the engine may have another version"
        yield _as_promised(
            AlertRule.PATCH, profile, is_so=profile.patch_applied, fact=fact, detail=detail
        )


def _as_promised(
    rule: AlertRule, profile: ProfileLook, *, is_so: bool | None, fact: str, detail: str
) -> Finding:
    subject = profile_subject(profile.name)
    if serving_state(profile) not in {ServingState.SERVING, ServingState.BUSY}:
        return signed(rule, subject, is_good=is_out(profile))
    if is_so is not False:
        return signed(rule, subject, is_good=is_so)
    return bad(rule, subject, fact, details=(detail,), command=f"appliance logs {profile.name}")


def _held_text(profile: ProfileLook) -> str:
    if profile.held_bytes is None or not profile.needs_bytes:
        return ""
    return f"{size_of_total(profile.held_bytes, profile.needs_bytes)} of GPU memory held"


def judge_drift(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the installed units are those that were applied."""
    del memory
    for profile in look.profiles.values():
        subject = profile_subject(profile.name)
        if not profile.drift:
            yield signed(AlertRule.DRIFT, subject, is_good=None if profile.drift is None else True)
            continue
        lines = "1 line" if len(profile.drift) == 1 else f"{len(profile.drift)} lines"
        yield bad(
            AlertRule.DRIFT,
            subject,
            f"its unit is not the one that was applied: {lines} changed",
            details=map(without_secrets, islice(profile.drift, _MOST_DRIFT)),
            command="sudo appliance apply --dry-run",
        )


RULES: Final = (
    Rule(
        rule=AlertRule.LIVE_DOWN,
        subjects=OF_PROFILE,
        severity=CRITICAL,
        bad_looks=3,
        of_looks=5,
        judged_by=(ANSWER, UNITS),
        ends=STOP_OR_BOOT,
        inhibited_by=ENGINE_CAUSES - {AlertRule.LIVE_DOWN} | {OutsideCause.OPERATION},
        over="serves again",
        command="appliance status NAME",
        judge=judge_serving,
        source="systemd's unit, the engine's health path; committed names, hold and operations",
    ),
    Rule(
        rule=AlertRule.CRASH_LOOP,
        subjects=OF_PROFILE,
        severity=CRITICAL,
        good_s=15 * MINUTES_S,
        judged_by=(UNITS,),
        ends=STOP_OR_BOOT,
        inhibited_by=frozenset({OutsideCause.OPERATION, AlertRule.DRIVER, AlertRule.GPU_LOST}),
        over="is stable again",
        command="appliance logs NAME -n 50",
        judge=judge_crash_loops,
        source="NRestarts and Result of the unit",
    ),
    Rule(
        rule=AlertRule.CPU_FALLBACK,
        subjects=OF_PROFILE,
        severity=WARNING,
        bad_looks=2,
        of_looks=2,
        judged_by=(GPUS_OF_ENGINE,),
        ends=STOP_OR_BOOT,
        inhibited_by=SUPERVISOR_DOWN | ENGINE_CAUSES,
        over="is where its profile says",
        command="appliance status NAME",
        judge=judge_cpu_fallback,
        source="NVML: memory that the unit's processes hold",
    ),
    Rule(
        rule=AlertRule.PATCH,
        subjects=OF_PROFILE,
        severity=WARNING,
        bad_looks=2,
        of_looks=2,
        judged_by=(UNITS,),
        ends=STOP_OR_BOOT,
        inhibited_by=SUPERVISOR_DOWN,
        over="is patched",
        command="appliance logs NAME -n 50",
        judge=judge_patches,
        source="the launcher's report of the patch command",
    ),
    Rule(
        rule=AlertRule.DRIFT,
        subjects=OF_PROFILE,
        severity=WARNING,
        bad_looks=2,
        of_looks=2,
        judged_by=(FILES,),
        inhibited_by=SUPERVISOR_DOWN,
        over="has the unit that was applied",
        command="appliance apply --dry-run",
        judge=judge_drift,
        source="installed unit beside the copy that apply keeps",
    ),
)
