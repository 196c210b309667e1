"""Report of the quality of a profile, as the health agent tells it from its memory."""

from dataclasses import dataclass
from typing import Final

from appliance.speed.quality.quality_message import canary_subject, group_subject
from appliance.speed.quality.quality_record import QualityRecord
from appliance.speed.quality.standard_canaries import TOOLS_PREFIX

_MOST_TOLD: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQuality:
    """Quality of one group of canaries."""

    group: str
    subject: str
    """Name of what is asked for, for people."""
    runs: int
    """Number of the last runs, of which the next tells."""
    pass_rate: float | None
    """Share of the last runs that passed; None: none has been judged."""
    baseline: float
    """Share that is accepted."""
    lost_unix_s: float | None
    """Time since which the group is lost; None: it is not."""
    fault: str
    """Last fault, as a phrase; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReport:
    """Quality of one profile."""

    profile: str
    groups: tuple[GroupQuality, ...] = ()
    pass_rate: float | None = None
    """Share of the last runs of all groups that passed; None: none has been judged."""
    last_round_unix_s: float | None = None
    """Time of the last round with an answer; None: none since the agent's start."""
    trouble: str = ""
    """Sentences about what keeps canaries from being asked or judged; empty: nothing."""


def quality_report(
    profile: str, record: QualityRecord, *, last_round_unix_s: float | None, unanswered: str
) -> QualityReport:
    """Return the report of a record.

    Args:
        profile: Its name.
        record: Its record.
        last_round_unix_s: Time of the last round; None: none.
        unanswered: Reason why canaries have had no answer for long; empty: they have.
    """
    groups = tuple(
        GroupQuality(
            group=name,
            subject=group_subject(name),
            runs=len(state.runs),
            pass_rate=state.pass_share,
            baseline=1 - state.baseline,
            lost_unix_s=state.lost_unix_s,
            fault=state.fault,
        )
        for name, state in sorted(record.groups.items())
        if state.runs
    )
    runs = "".join(state.runs for state in record.groups.values())
    return QualityReport(
        profile=profile,
        groups=groups,
        pass_rate=runs.count("1") / len(runs) if runs else None,
        last_round_unix_s=last_round_unix_s,
        trouble=quality_trouble(record, unanswered),
    )


def quality_trouble(record: QualityRecord, unanswered: str) -> str:
    """Return sentences about what keeps canaries from being asked or judged; empty: nothing.

    Args:
        record: Record of the profile.
        unanswered: Reason why canaries have had no answer for long; empty: they have.
    """
    found = [f"canaries get no answer: {unanswered}"] if unanswered else []
    found += [f"canary file: {problem}" for problem in record.file_problems[:1]]
    unproven = sorted(record.unproven.items())
    found += [
        f"canary {canary_subject(name)} has never passed: {fault}{_hint(name)}"
        for name, fault in unproven[:_MOST_TOLD]
    ]
    if len(unproven) > _MOST_TOLD:
        found.append(f"{len(unproven) - _MOST_TOLD} more have never passed")
    return "; ".join(found)


def _hint(name: str) -> str:
    """Return what the owner of a profile can do about a canary that has never passed."""
    if not name.startswith(TOOLS_PREFIX):
        return ""
    return " (tools = false in the profile, if it promises none)"
