"""Verdict on one profile: whether it ended badly, the exit status of ``status NAME``, and whether its file may go."""

from __future__ import annotations

from appliance.wire.control import Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from appliance.model.status import ProfileRow, ProfileState

_BAD_STATES: Final[tuple[ProfileState, ...]] = ("failed", "restarting", "refused")
_OVER: Final[tuple[ProfileState, ...]] = ("stopped", "failed", "refused")
"""States in which no process is left, and none comes back by itself."""


def ended_badly(state: ProfileState) -> bool:
    """Tell whether a profile in this state was meant to run and could not."""
    return state in _BAD_STATES


def breaks_promise(row: ProfileRow) -> bool:
    """Tell whether an engine reports what its profile neither declares nor allows."""
    verification = row.verification
    facts = verification.facts if verification else ()
    return any(fact.state == "differs" and fact.fails for fact in facts)


def profile_exit(row: ProfileRow) -> int:
    """Return the exit status of ``status NAME``."""
    if row.state == "serving":
        return Exit.FAILED if row.stall or breaks_promise(row) else Exit.OK
    if ended_badly(row.state) or row.state == "unresponsive" or row.committed:
        return Exit.FAILED
    return Exit.NOTHING_SERVING


def removal_refusal(row: ProfileRow) -> str | None:
    """Return why the profile's file may not be removed, with the commands to type; None: it may."""
    name = row.name
    faults, commands = [], []
    if row.state not in _OVER:
        faults.append(f"{name} is {row.state}")
        commands.append(f"appliance stop {name}")
    if row.committed:
        faults.append("a boot starts it" if faults else f"a boot starts {name}")
        commands.append(f"appliance uncommit {name}")
    return f"{', and '.join(faults)}: {', then '.join(commands)}" if faults else None
