"""Frame of the messages about alerts: a title, at most three lines, the command to type, and the runbook.

The words of an alert are its rule's: `judge_…` and `RULES` in the module of the rule (`appliance.alerts.rules`).

A message is made at the moment in which it is sent, so ages in it are true then, and a late one says so::

    ▼ genesis slow: 27.1 tok/s (was 41.0) #A17
    garage · since 04:10 (35 min) · delayed 3 h 12 min
    4 probes, -34 %
    Likely: 11 of 49 layers on the CPU
    Do: appliance status genesis
    Runbook: slow

All messages of an episode have one sequence id: a receiver that knows such ids shows one entry, whose last
message is the present one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.alerts.box_messages import sequence_word
from appliance.alerts.rules import command_for, over_phrase
from appliance.model.alerts import (
    Message,
    MessageAction,
    Severity,
    Subject,
    SubjectKind,
    Transition,
    TransitionKind,
)
from appliance.model.amounts import age, duration

MOST_TITLE: Final = 100
_MOST_LINE: Final = 240
_MOST_ROWS: Final = 12
"""Alerts that a message about several of them names."""
_LATE_S: Final = 90.0
"""Age from which a message says that it is late: grouping and a first retry take less."""
_STABLE_S: Final = 300.0
"""Time from an end to the message about it from which on that says so: an alert that came and went."""
_TAGS: Final = {
    Severity.CRITICAL: "rotating_light",
    Severity.WARNING: "warning",
    Severity.INFO: "information_source",
}
"""Emoji short codes, which ntfy shows before a title; other services drop them."""
_OVER_TAG: Final = "white_check_mark"
_ORDER: Final = tuple(Severity)
_MARKS: Final = {
    TransitionKind.RESOLVED: "▲",
    TransitionKind.FLAPPING: "≈",
}
_DOWN: Final = "▼"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """Circumstances in which a message is made."""

    host: str
    """Name of this machine."""
    now_unix_s: float
    clock: Callable[[float], str]
    """Function that returns the local time of a moment as people read it: ``04:10``."""
    actions: tuple[MessageAction, ...] = ()
    click_url: str = ""
    due_unix_s: float | None = None
    """Time at which it was to be sent at the earliest; None: when the change happened."""


def message(transition: Transition, rendering: Rendering) -> Message:
    """Return the message about one change."""
    resolved = transition.kind is TransitionKind.RESOLVED
    return Message(
        title=title_of(transition, rendering.host),
        body="\n".join(_body(transition, rendering)),
        severity=transition.severity,
        resolved=resolved,
        sequence_id=sequence_id(rendering.host, transition),
        tags=(_OVER_TAG if resolved else _TAGS[transition.severity],),
        click_url=rendering.click_url,
        actions=() if resolved else rendering.actions,
    )


def joint_message(
    transitions: Sequence[Transition], rendering: Rendering, *, joined_id: str, is_late: bool
) -> Message:
    """Return one message about several changes, the most severe first.

    Args:
        transitions: The changes, at least one, oldest first; of an alert that is over by now, both.
        rendering: Circumstances.
        joined_id: Name of the message, the same at each attempt to send it.
        is_late: Whether nothing could be sent for a while, which is why they are in one message.
    """
    firing, over = _standing(transitions)
    rows = sorted(firing, key=lambda one: _ORDER.index(one.severity)) + over
    lines = [one_line(one, rendering) for one in rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        lines.append(f"and {len(rows) - _MOST_ROWS} more")
    if is_late:
        since_s = min(one.unix_s for one in transitions)
        lines.insert(0, f"Nothing could be sent since {rendering.clock(since_s)}.")
    severity = min((one.severity for one in firing), key=_ORDER.index, default=Severity.INFO)
    standing = f"{len(firing)} not over" if firing else "all over"
    mark = _DOWN if firing else _MARKS[TransitionKind.RESOLVED]
    return Message(
        title=f"{mark} {rendering.host}: {_count(len(rows))}, {standing}",
        body="\n".join([*lines, "Do: appliance alerts"]),
        severity=severity,
        resolved=not firing,
        sequence_id=sequence_word(f"{rendering.host}-{joined_id}"),
        tags=(_TAGS[severity] if firing else _OVER_TAG,),
        click_url=rendering.click_url,
    )


def title_of(transition: Transition, host: str) -> str:
    """Return the title of a change, of at most 100 characters; the alert's short id comes last."""
    name = subject_name(transition.subject, host)
    fact = _flat(transition.fact) or transition.rule.value
    match transition.kind:
        case TransitionKind.RESOLVED:
            phrase = over_phrase(transition.rule, transition.over)
        case TransitionKind.FLAPPING:
            phrase = f"comes and goes: {fact}"
        case TransitionKind.REMINDED:
            phrase = f"still {fact}"
        case _:
            phrase = fact
    mark = _MARKS.get(transition.kind, _DOWN)
    ending = f" #{transition.alert}"
    return _clipped(f"{mark} {name} {phrase}", MOST_TITLE - len(ending)) + ending


def one_line(transition: Transition, rendering: Rendering) -> str:
    """Return a change as one line of a message about several: its title and its time."""
    return f"{title_of(transition, rendering.host)} · {rendering.clock(_since_s(transition))}"


def subject_name(subject: Subject, host: str) -> str:
    """Return the name of a subject as a title begins with it."""
    names = {SubjectKind.BOX: host, SubjectKind.GPU: "GPU"}
    return names.get(subject.kind, subject.name)


def command_of(transition: Transition) -> str:
    """Return the command that a person types next."""
    return command_for(transition.rule, transition.subject, transition.command)


def sequence_id(host: str, transition: Transition) -> str:
    """Return the id that all messages of an episode have, and no other episode of any of our boxes."""
    return sequence_word(f"{host}-{transition.alert}-{transition.rule}-{transition.episode}")


def _body(transition: Transition, rendering: Rendering) -> Sequence[str]:
    details = " · ".join(line for line in transition.details if line.strip())
    resolved = transition.kind is TransitionKind.RESOLVED
    found = [_circumstances(transition, rendering)]
    if resolved:
        found.append(f"It was: {transition.fact}" if transition.fact else "")
    else:
        found.append(details)
        found.append(f"Likely: {transition.likely}" if transition.likely else "")
        is_well = transition.ended_unix_s is not None
        found.append("" if is_well else f"Do: {command_of(transition)}")
        found.append(f"Runbook: {transition.rule}")
    return [_clipped(_flat(line), _MOST_LINE) for line in found if line]


def _circumstances(transition: Transition, rendering: Rendering) -> str:
    """Return the line that says where and since when."""
    since_s, now_s = _since_s(transition), rendering.now_unix_s
    ended_s = transition.ended_unix_s
    if transition.kind is TransitionKind.RESOLVED:
        ended_s = transition.unix_s if ended_s is None else ended_s
        since_s = min(since_s, ended_s)
        span = f"{rendering.clock(since_s)} to {rendering.clock(ended_s)}"
        parts = [rendering.host, f"{span} ({age(ended_s - since_s)})"]
        if transition.unix_s - ended_s >= _STABLE_S:
            parts.append(f"stable for {age(transition.unix_s - ended_s)}")
    elif ended_s is not None:
        over = over_phrase(transition.rule, transition.over)
        parts = [
            rendering.host,
            f"{over} since {rendering.clock(ended_s)} ({age(now_s - ended_s)})",
        ]
    else:
        parts = [rendering.host, f"since {rendering.clock(since_s)} ({age(now_s - since_s)})"]
    due_s = transition.unix_s if rendering.due_unix_s is None else rendering.due_unix_s
    late_s = now_s - max(due_s, transition.unix_s)
    if late_s >= _LATE_S:
        parts.append(f"delayed {duration(late_s)}")
    return " · ".join(parts)


def _since_s(transition: Transition) -> float:
    return transition.unix_s if transition.since_unix_s is None else transition.since_unix_s


def _standing(transitions: Sequence[Transition]) -> tuple[list[Transition], list[Transition]]:
    """Return the last change of each alert, of those that fire and of those that are over."""
    last: dict[str, Transition] = {}
    for one in transitions:
        before = last.pop(one.alert, one)
        last[one.alert] = one.replaced(fact=one.fact or before.fact)
    firing = [one for one in last.values() if one.kind is not TransitionKind.RESOLVED]
    over = [one for one in last.values() if one.kind is TransitionKind.RESOLVED]
    return firing, over


def _count(number: int) -> str:
    return f"{number} alert{'s' * (number != 1)}"


def _flat(text: str) -> str:
    """Return a text as one line."""
    return " ".join(text.split())


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
