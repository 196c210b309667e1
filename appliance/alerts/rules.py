"""Watchdog: the registry of its rules, and their findings at one look of the box.

Each rule judges all of its subjects at every look, so that the alert book knows what is well too. A
subject that is missing from the findings was not seen.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from appliance.alerts import (
    box_rules,
    engine_rules,
    gpu_rules,
    isolation_rules,
    profile_rules,
)
from appliance.alerts.rule import (
    EndedBy,
    Rule,
    Since,
    ended,
    unknown,
)
from appliance.alerts.serving_state import is_stopped
from appliance.alerts.snapshot import BoxLook, ProfileLook
from appliance.alerts.watchdog_memory import WatchdogMemory, remember
from appliance.model.alerts import AlertRule, Finding, Sign, Subject, SubjectKind

_ROWS: Final = {
    row.rule: row
    for module in (profile_rules, engine_rules, isolation_rules, gpu_rules, box_rules)
    for row in module.RULES
}
RULES: Final[Mapping[AlertRule, Rule]] = {rule: _ROWS[rule] for rule in AlertRule}
"""Rules by key, in the order of `AlertRule`."""


def over_phrase(rule: AlertRule, over: str) -> str:
    """Return the phrase about the end of an alert: its own, or its rule's where that is empty."""
    return over or RULES[rule].over


def command_for(rule: AlertRule, subject: Subject, command: str) -> str:
    """Return the command that a person types next: the finding's own, or its rule's where that is empty."""
    return command or RULES[rule].command.replace("NAME", subject.name).rstrip()


def findings(
    look: BoxLook, memory: WatchdogMemory, *, rules: Iterable[Rule] = tuple(RULES.values())
) -> tuple[Sequence[Finding], WatchdogMemory]:
    """Return what the rules find at a look, and the memory for the next one."""
    after = remember(look, memory)
    found = [
        _that_counts(finding, look, after) for rule in rules for finding in rule.judge(look, after)
    ]
    return found, replace(after, stalled=tuple(_stalled(found, frozenset(after.stalled))))


def _that_counts(found: Finding, look: BoxLook, memory: WatchdogMemory) -> Finding:
    """Return a finding, as far as what it is judged by counts by its rule."""
    rule = RULES[found.rule]
    is_profile = found.subject.kind is SubjectKind.PROFILE
    profile = look.profiles.get(found.subject.name) if is_profile else None
    if EndedBy.STOP in rule.ends and profile is not None and is_stopped(profile, look):
        return ended(found.rule, found.subject, "was stopped")
    if found.sign is Sign.UNKNOWN:
        return found
    for evidence in rule.judged_by:
        read_s = look.read_at(evidence.reading, found.subject)
        if read_s is None:
            continue
        since_s = _since_s(evidence.since, profile, memory)
        if look.monotonic_s - read_s > evidence.oldest_s or read_s < since_s:
            return unknown(found.rule, found.subject)
    first_s = look.read_at(rule.judged_by[0].reading, found.subject)
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
