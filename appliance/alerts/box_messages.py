"""Messages about this box and its health agent, which come when no rule can be judged.

They are apart from those about alerts, so that the message about a dead agent needs none of the modules of rules.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from appliance.model.alerts import (
    Message,
    Severity,
)
from appliance.model.amounts import age

_MOST_SEQUENCE_ID: Final = 64
"""Limit of ntfy."""
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]+")


def sequence_word(text: str) -> str:
    """Return a text as a sequence id: letters, digits, ``-`` and ``_`` alone, at most 64 of them."""
    return _FOREIGN.sub("-", text)[-_MOST_SEQUENCE_ID:].strip("-")


_FIRE_TAGS: Final = ("rotating_light",)
_OVER_TAGS: Final = ("white_check_mark",)
_AGENT: Final = "appliance-health"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxWords:
    """Circumstances in which messages about the box are made."""

    host: str
    """Name of this machine."""
    clock: Callable[[float], str]
    """Function that returns the local time of a moment as people read it: ``04:10``."""


def box_silent(words: BoxWords, now_unix_s: float) -> Message:
    """Return the message that a target is to deliver if nothing comes from this box any more."""
    return Message(
        title=f"▼ {words.host} is silent",
        body=(
            f"Nothing has come from {words.host} since {words.clock(now_unix_s)}: it has no power, no"
            " network, or its health agent is dead.\n"
            f"Do: ssh {words.host} appliance status\n"
            "Runbook: box-silent"
        ),
        severity=Severity.CRITICAL,
        sequence_id=silent_sequence_id(words),
        tags=_FIRE_TAGS,
    )


def box_back(words: BoxWords, *, silent_unix_s: float, now_unix_s: float) -> Message:
    """Return the message that takes the place of a delivered `box_silent`."""
    span = f"{words.clock(silent_unix_s)} to {words.clock(now_unix_s)}"
    return Message(
        title=f"▲ {words.host} is heard again",
        body=f"{words.host} · silent {span} ({age(now_unix_s - silent_unix_s)})",
        severity=Severity.CRITICAL,
        resolved=True,
        sequence_id=silent_sequence_id(words),
        tags=_OVER_TAGS,
    )


def agent_dead(words: BoxWords, *, now_unix_s: float, result: str, again_in: str) -> Message:
    """Return the message that the health agent has failed too often.

    Args:
        words: Circumstances.
        now_unix_s: Time at which systemd gave it up.
        result: Result of its unit, as systemd names it: ``watchdog``; empty: not known.
        again_in: Time after which systemd tries again, as people read it.
    """
    why = f" ({result})" if result else ""
    return Message(
        title=f"▼ {words.host}: the health agent is dead",
        body=(
            f"{words.host} · since {words.clock(now_unix_s)}{why}\n"
            f"Models go on, and nobody watches them; tried again in {again_in}.\n"
            f"Do: journalctl -u {_AGENT} -n 50\n"
            "Runbook: health-agent-dead"
        ),
        severity=Severity.CRITICAL,
        sequence_id=_dead_id(words),
        tags=_FIRE_TAGS,
    )


def agent_back(words: BoxWords, *, dead_unix_s: float, now_unix_s: float) -> Message:
    """Return the message that takes the place of `agent_dead`."""
    span = f"{words.clock(dead_unix_s)} to {words.clock(now_unix_s)}"
    return Message(
        title=f"▲ {words.host}: the health agent watches again",
        body=f"{words.host} · nobody watched {span} ({age(now_unix_s - dead_unix_s)})",
        severity=Severity.CRITICAL,
        resolved=True,
        sequence_id=_dead_id(words),
        tags=_OVER_TAGS,
    )


def silent_sequence_id(words: BoxWords) -> str:
    """Return the sequence id of `box_silent` and `box_back`."""
    return sequence_word(f"{words.host}-box-silent")


def _dead_id(words: BoxWords) -> str:
    return sequence_word(f"{words.host}-health-agent-dead")
