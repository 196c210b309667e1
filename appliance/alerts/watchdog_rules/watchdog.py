"""Watchdog: the registry of its rules, and their findings at one look of the box.

Each rule judges all of its subjects at every look, so that the alert book knows what is well too. A
subject that is missing from the findings was not seen.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from appliance.alerts.book.alert_context import AlertCircumstances
from appliance.alerts.book.alert_rules import ALERT_TERMS, EndedBy, Since
from appliance.alerts.watchdog_rules import (
    box_rules,
    exposure_rules,
    gpu_rules,
    operation_rules,
    profile_rules,
    progress_rule,
    speed_rules,
    vram_rules,
)
from appliance.alerts.watchdog_rules.serving_state import is_stopped
from appliance.alerts.watchdog_rules.snapshot import BoxLook, ProfileLook
from appliance.alerts.watchdog_rules.watchdog_memory import WatchdogMemory, remember
from appliance.alerts.watchdog_rules.watchdog_rule import (
    WatchdogRule,
    ended,
    profile_subject,
    unknown,
)
from appliance.model.alerts import AlertRule, Finding, Sign, Subject, SubjectKind
from appliance.model.gateway import is_loopback

RULES: Final = (
    WatchdogRule(
        rule=AlertRule.LIVE_DOWN,
        judge=profile_rules.judge_serving,
        source="systemd's unit, the engine's health path; committed names, hold and operations",
    ),
    WatchdogRule(
        rule=AlertRule.NO_PROGRESS,
        judge=progress_rule.judge_progress,
        source="the gateway's requests and bytes, CPU time of the unit, NVML's utilisation and power",
    ),
    WatchdogRule(
        rule=AlertRule.CRASH_LOOP,
        judge=profile_rules.judge_crash_loops,
        source="NRestarts and Result of the unit",
    ),
    WatchdogRule(
        rule=AlertRule.CPU_FALLBACK,
        judge=profile_rules.judge_cpu_fallback,
        source="NVML: memory that the unit's processes hold",
    ),
    WatchdogRule(
        rule=AlertRule.SLOW,
        judge=speed_rules.judge_speed,
        source="detector of regressions",
    ),
    WatchdogRule(
        rule=AlertRule.QUALITY,
        judge=speed_rules.judge_quality,
        source="pass rates of the canaries",
    ),
    WatchdogRule(
        rule=AlertRule.NO_PROBE,
        judge=speed_rules.judge_probes,
        source="schedule of the probes",
    ),
    WatchdogRule(
        rule=AlertRule.PATCH,
        judge=profile_rules.judge_patches,
        source="the launcher's report of the patch command",
    ),
    WatchdogRule(
        rule=AlertRule.DRIFT,
        judge=profile_rules.judge_drift,
        source="installed unit beside the copy that apply keeps",
    ),
    WatchdogRule(
        rule=AlertRule.SWITCH_FAILED,
        judge=operation_rules.judge_last_operation,
        source="last operation of the supervisor",
    ),
    WatchdogRule(
        rule=AlertRule.SWITCH_STUCK,
        judge=operation_rules.judge_running_operation,
        source="running operation of the supervisor",
    ),
    WatchdogRule(
        rule=AlertRule.EXPOSED,
        judge=exposure_rules.judge_listeners,
        source="the kernel's tables of listening sockets",
    ),
    WatchdogRule(
        rule=AlertRule.FILTER_OFF,
        judge=exposure_rules.judge_filters,
        source="IPEgressBytes of the unit (systemd.resource-control(5))",
    ),
    WatchdogRule(
        rule=AlertRule.FOREIGN_HOLDER,
        judge=vram_rules.judge_foreign_holders,
        source="NVML: processes with memory of the GPU that belong to no profile",
    ),
    WatchdogRule(
        rule=AlertRule.UNATTRIBUTED,
        judge=vram_rules.judge_unattributed,
        source="NVML: used memory less that of the listed processes",
    ),
    WatchdogRule(
        rule=AlertRule.GPU_LOST,
        judge=gpu_rules.judge_presence,
        source="NVML: error GPU_IS_LOST, or a device that is listed no more",
    ),
    WatchdogRule(
        rule=AlertRule.GPU_ERROR,
        judge=gpu_rules.judge_errors,
        source="NVML event XidCriticalError; tiers of NVIDIA's Xid Catalog",
    ),
    WatchdogRule(
        rule=AlertRule.GPU_RECOVERY,
        judge=gpu_rules.judge_recovery,
        source="NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
    ),
    WatchdogRule(
        rule=AlertRule.ECC,
        judge=gpu_rules.judge_memory_errors,
        source="NVML: total uncorrected errors, remapped rows",
    ),
    WatchdogRule(
        rule=AlertRule.THROTTLE,
        judge=gpu_rules.judge_throttling,
        source="NVML nvmlDeviceGetCurrentClocksEventReasons",
    ),
    WatchdogRule(
        rule=AlertRule.PCIE,
        judge=gpu_rules.judge_links,
        source="NVML nvmlDeviceGetCurrPcieLinkWidth, under load",
    ),
    WatchdogRule(
        rule=AlertRule.DRIVER,
        judge=box_rules.judge_driver,
        source="NVML nvmlInit in a fresh process",
    ),
    WatchdogRule(
        rule=AlertRule.DISK,
        judge=box_rules.judge_disks,
        source="statvfs of our directories, and the stores' own word",
    ),
    WatchdogRule(
        rule=AlertRule.SUPERVISOR_DOWN,
        judge=box_rules.judge_supervisor,
        source="status stream, NRestarts of the unit",
    ),
    WatchdogRule(
        rule=AlertRule.GATEWAY_DOWN,
        judge=box_rules.judge_gateway,
        source="the gateway's answer, NRestarts of the unit",
    ),
    WatchdogRule(
        rule=AlertRule.WATCH_DOWN,
        judge=box_rules.judge_watches,
        source="systemd's unit, or an answer of the URL",
    ),
)
"""Rules in the order of `AlertRule`."""


def findings(
    look: BoxLook, memory: WatchdogMemory, *, rules: Sequence[WatchdogRule] = RULES
) -> tuple[Sequence[Finding], WatchdogMemory]:
    """Return what the rules find at a look, and the memory for the next one."""
    after = remember(look, memory)
    found = [
        _that_counts(finding, look, after) for rule in rules for finding in rule.judge(look, after)
    ]
    return found, replace(after, stalled=tuple(_stalled(found, frozenset(after.stalled))))


def _that_counts(found: Finding, look: BoxLook, memory: WatchdogMemory) -> Finding:
    """Return a finding, as far as what it is judged by counts (`ALERT_TERMS`)."""
    terms = ALERT_TERMS[found.rule]
    is_profile = found.subject.kind is SubjectKind.PROFILE
    profile = look.profiles.get(found.subject.name) if is_profile else None
    if EndedBy.STOP in terms.ends and profile is not None and is_stopped(profile, look):
        return ended(found.rule, found.subject, "was stopped")
    if found.sign is Sign.UNKNOWN:
        return found
    for evidence in terms.judged_by:
        read_s = look.read_at(evidence.reading, found.subject)
        if read_s is None:
            continue
        since_s = _since_s(evidence.since, profile, memory)
        if look.monotonic_s - read_s > evidence.oldest_s or read_s < since_s:
            return unknown(found.rule, found.subject)
    first_s = look.read_at(terms.judged_by[0].reading, found.subject)
    return found if first_s is None else replace(found, read_s=first_s)


def _since_s(since: Since, profile: ProfileLook | None, memory: WatchdogMemory) -> float:
    """Return the time before which a reading does not count."""
    at_s = None
    if since is Since.START and profile is not None:
        at_s = profile.began_s
    elif since is Since.OPERATION:
        at_s = memory.operated_s
    return -inf if at_s is None else at_s


def _stalled(found: Iterable[Finding], before: Collection[str]) -> Iterable[str]:
    """Yield the profiles that make no progress, and those of which nothing better is known since."""
    for one in found:
        is_unknown = one.sign is Sign.UNKNOWN and one.subject.name in before
        if one.rule is AlertRule.NO_PROGRESS and (one.sign is Sign.BAD or is_unknown):
            yield one.subject.name


def circumstances(look: BoxLook) -> AlertCircumstances:
    """Return the facts of a look that decide who is told of its findings.

    Whether this box reaches other machines is not in a look: the caller adds it.
    """
    watches = {
        Subject(kind=SubjectKind.WATCH, name=watch.name): watch.mark for watch in look.watches
    }
    profiles = {profile_subject(name): profile for name, profile in look.profiles.items()}
    told = {subject: profile.mark for subject, profile in profiles.items() if profile.mark}
    return AlertCircumstances(
        marks=told | watches,
        existing=frozenset({*profiles, *watches}) if profiles else None,
        operation=look.operation,
        supervisor_down=not look.supervisor_answers,
        remote_watches=frozenset(one.name for one in look.watches if _is_remote(one.host)),
        profile_gpus={profile.name: profile.gpus for profile in look.profiles.values()},
    )


def _is_remote(host: str) -> bool:
    return host not in {"", "localhost"} and not is_loopback(host)
