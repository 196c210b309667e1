"""Sentences of the supervisor on the box, its changes, and the gateway's part in an operation."""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.model.journal_events import JournalEvent
from appliance.model.observed import Observed
from appliance.model.operations import Operation
from appliance.switch.outcomes import crash_text


def described(operation: Operation) -> str:
    """Return an operation's kind and target: ``switch genesis``."""
    return f"{operation.kind} {' '.join(operation.target)}".strip()


def summary(observed: Observed, committed: Sequence[str], operation: Operation | None) -> str:
    """Return the box in one line."""
    serving = ", ".join(observed.serving()) or "nothing"
    parts = [f"serving {serving}"]
    if operation is not None:
        turned = ", rolling back" if operation.rolling_back else ""
        parts.append(f"{described(operation)}: {operation.phase}{turned}")
    elif not observed.run.idle:
        parts.append("a command runs")
    after_boot = ", ".join(committed) or "nothing"
    if after_boot != serving:
        parts.append(f"after a boot {after_boot}")
    if observed.hold_active:
        parts.append("on hold")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileNews:
    """Sentence about a profile, with the event in the journal that it is."""

    event: JournalEvent
    profile: str
    sentence: str


def crashes(before: Observed, after: Observed) -> tuple[ProfileNews, ...]:
    """Return a sentence for every engine that has ended by itself between two looks, sorted."""
    return tuple(
        ProfileNews(
            event=JournalEvent.PROFILE_CRASHED,
            profile=name,
            sentence=f"{name} crashed ({crash_text(unit)}): systemd starts it again",
        )
        for name, unit in sorted(after.units.items())
        if unit.waits_to_restart and unit.engine_ended and not before.unit(name).waits_to_restart
    )


def changes(
    before: Sequence[str], after: Sequence[str], committed: Sequence[str], *, operating: bool
) -> tuple[ProfileNews, ...]:
    """Return a sentence for every profile that began or ceased to serve.

    Args:
        before: Profiles that served.
        after: Profiles that serve.
        committed: Names that a boot starts.
        operating: An operation runs, so that what is not committed is not by hand.
    """
    came = tuple(
        ProfileNews(
            event=JournalEvent.PROFILE_SERVES,
            profile=name,
            sentence=f"{name} serves{'' if operating or name in committed else ' (not committed)'}",
        )
        for name in sorted(set(after) - set(before))
    )
    left = tuple(
        ProfileNews(
            event=JournalEvent.PROFILE_LEFT, profile=name, sentence=f"{name} no longer serves"
        )
        for name in sorted(set(before) - set(after))
    )
    return came + left


def held_text(requests: int) -> str:
    """Return how many requests are held: ``3 requests wait``; empty for none."""
    if not requests:
        return ""
    return "1 request waits" if requests == 1 else f"{requests} requests wait"


def drained_text(finished: int, cut: int, timeout_s: float) -> str:
    """Return how the requests in flight ended: ``2 finished, 1 cut after 30 s``."""
    if not finished and not cut:
        return "no requests in flight"
    when = f"after {timeout_s:g} s" if timeout_s else "at once"
    parts = [f"{finished} finished"] if finished else []
    parts += [f"{cut} cut {when}"] if cut else []
    return ", ".join(parts)


def released_text(requests: int) -> str:
    """Return how many held requests go on: ``1 request goes on``; empty for none."""
    if not requests:
        return ""
    return "1 request goes on" if requests == 1 else f"{requests} requests go on"
