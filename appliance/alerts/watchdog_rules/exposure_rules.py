"""Rules about reach: listeners beyond loopback, and loopback filters that the kernel does not enforce.

A backend of a retired profile is told of the box: its mark says that nobody misses it, not that everybody
may connect to it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from appliance.alerts.watchdog_rules.snapshot import BoxLook, ProfileLook
from appliance.alerts.watchdog_rules.watchdog_memory import WatchdogMemory
from appliance.alerts.watchdog_rules.watchdog_rule import (
    bad,
    good,
    profile_subject,
    signed,
    unknown,
)
from appliance.model.alerts import BOX, AlertRule, Finding
from appliance.model.names import profile_of
from appliance.model.wording import joined
from appliance.model.words import Mark
from appliance.wire.helpers import Listener

_MOST_TOLD: Final = 3
_BOX_OWN: Final = ""


def judge_listeners(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether a backend, or another process that holds memory of a GPU, listens to others."""
    del memory
    exposed = _by_owner(look)
    for name, profile in look.profiles.items():
        subject = profile_subject(name)
        if look.listeners is None or (exposed[name] and not _is_told(profile)):
            yield unknown(AlertRule.EXPOSED, subject)
        elif exposed[name]:
            yield _exposed(name, profile, exposed[name])
        else:
            yield good(AlertRule.EXPOSED, subject)
    others = [
        one
        for name, listeners in exposed.items()
        for one in listeners
        if name == _BOX_OWN or not _is_told(look.profiles[name])
    ]
    if look.listeners is None:
        yield unknown(AlertRule.EXPOSED, BOX)
    elif others:
        yield _exposed(_BOX_OWN, None, others)
    else:
        yield good(AlertRule.EXPOSED, BOX)


def _is_told(profile: ProfileLook) -> bool:
    return profile.mark is not Mark.RETIRED


def _by_owner(look: BoxLook) -> Mapping[str, list[Listener]]:
    """Return the listeners that others reach, by profile; those of nobody's profile under no name."""
    found: defaultdict[str, list[Listener]] = defaultdict(list)
    for one in look.listeners or ():
        if one.is_reachable:
            owner = profile_of(one.unit)
            found[owner if owner and owner in look.profiles else _BOX_OWN].append(one)
    return found


def _exposed(name: str, profile: ProfileLook | None, listeners: Sequence[Listener]) -> Finding:
    first = listeners[0]
    is_filtered = profile is not None and profile.unit is not None and profile.unit.is_filtered
    return bad(
        AlertRule.EXPOSED,
        profile_subject(name) if name else BOX,
        f"exposed: {first.process} listens on {_address(first)}",
        details=(
            *(_owner_text(one) for one in listeners[:_MOST_TOLD]),
            "the filter of its unit still keeps other machines out" if is_filtered else "",
        ),
        command=f"appliance show {name}" if name else f"ps -fp {first.pid}",
    )


def _owner_text(listener: Listener) -> str:
    unit = f", {listener.unit}" if listener.unit else ""
    return f"{_address(listener)}: {listener.process} (pid {listener.pid}{unit})"


def _address(listener: Listener) -> str:
    host = f"[{listener.address}]" if ":" in listener.address else listener.address
    return f"{host}:{listener.port}"


def judge_filters(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether this kernel enforces the loopback filters of the backends that run."""
    del memory
    states = {
        name: profile.unit.is_filtered
        for name, profile in look.profiles.items()
        if profile.unit is not None and profile.unit.is_filtered is not None
    }
    off = sorted(name for name, is_filtered in states.items() if not is_filtered)
    if not off:
        yield signed(AlertRule.FILTER_OFF, BOX, is_good=bool(states) or None)
        return
    yield bad(
        AlertRule.FILTER_OFF,
        BOX,
        f"loopback filter not enforced: {joined(off[:_MOST_TOLD])}",
        details=("other machines may reach these engines if they listen on all addresses",),
        likely="a kernel without BPF for control groups, or a container",
        command=f"systemctl show -p IPEgressBytes appliance-backend-{off[0]}",
    )
