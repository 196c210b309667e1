"""Sentences about the quality of a profile, for events: what, how much, and what to type.

As other sentences of events they have neither the profile's name before them nor clock times.
"""

from typing import Final

from appliance.model.profile import Applied
from appliance.model.trap_names import TrapName
from appliance.speed.quality.canary import OWN, Canary
from appliance.speed.quality.pass_rate import PassRate
from appliance.speed.quality.standard_canaries import REQUIRED_TOOL, SCHEMA_GROUP, TOOLS_GROUP

_SUBJECTS: Final = {
    SCHEMA_GROUP: "answers by a JSON schema",
    TOOLS_GROUP: "tool calls",
}
_PARSER: Final = "--reasoning-parser"
_RECENT: Final = 24
"""Runs of which a message tells how many failed: those that made the loss, rather than a week."""


def group_subject(group: str) -> str:
    """Return what a group's canaries ask for, in the plural."""
    return _SUBJECTS.get(group) or f"answers to canary {group.removeprefix(OWN)}"


def canary_subject(name: str) -> str:
    """Return the name of a canary as people know it."""
    return name.removeprefix(OWN)


def fault_hint(applied: Applied, canary: Canary) -> str:
    """Return what of a profile a fault of a canary comes from, as an end of its phrase; empty: not known."""
    holds = canary.group == SCHEMA_GROUP or canary.name.startswith(REQUIRED_TOOL)
    parses_nothing = _PARSER in applied.command and applied.abilities.reasoning is False
    return f" (trap {TrapName.PARSER_WITHOUT_THINKING})" if holds and parses_nothing else ""


def refused_text(profile: str, directory: str, problem: str) -> str:
    """Return the sentence about a canary file that is not understood."""
    return f"{directory}/{profile}.jsonl: {problem}"


def lost_text(profile: str, state: PassRate) -> str:
    """Return the sentence about a loss."""
    runs = state.runs[-_RECENT:]
    return (
        f"{runs.count('0')} of the last {len(runs)} {group_subject(state.group)} failed"
        f" ({state.fault}); do: appliance logs {profile}"
    )


def recovered_text(group: str, lasted_s: float) -> str:
    """Return the sentence about a recovery."""
    hours = max(1, round(lasted_s / 3600))
    return f"{group_subject(group)} pass again, after {hours} h"


def accepted_text(group: str, faults: float, by: str) -> str:
    """Return the sentence about a level that was accepted."""
    share = f"{100 * (1 - faults):.0f} %"
    return f"{share} of {group_subject(group)} pass: accepted by {by} as the baseline"
