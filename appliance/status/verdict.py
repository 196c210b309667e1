"""Verdict of the status: whether the box serves what it should, and why not, for people.

============  ====  =======================================================================
state         exit  when
============  ====  =======================================================================
``serving``   0     something serves, and every committed profile does (or a hold or an
                    operation explains why not)
``degraded``  1     something serves, but a committed profile does not, an engine makes no
                    progress or runs otherwise than its profile declares and allows, no gateway
                    answers clients, or nobody supervises
``nothing``   3     nothing serves, during a hold or a load too
============  ====  =======================================================================
"""

from collections.abc import Sequence
from typing import Final

from appliance.model.amounts import age
from appliance.model.memory import GpuState
from appliance.model.names import RUN_UNIT
from appliance.model.profile import Catalogue
from appliance.model.status import (
    GatewayRow,
    HoldRow,
    MemoryRow,
    OperationRow,
    ProfileFileRow,
    ProfileRow,
    RunRow,
    SupervisorRow,
    Verdict,
)
from appliance.model.wording import joined, requester_name, running_sentences
from appliance.status.profile_verdict import breaks_promise, ended_badly
from appliance.status.verification import difference_note
from appliance.switch.goals import in_the_way
from appliance.wire.control import Exit

NOT_RUNNING: Final = "supervisor not running: sudo systemctl start appliance-supervisor"
NO_GATEWAY: Final = (
    "no gateway, so no client is answered:"
    " sudo systemctl start appliance-gateway.socket appliance-gateway.service"
)
_IDLE: Final = frozenset({"stopped", "failed", "refused"})


def verdict_of(
    rows: Sequence[ProfileRow],
    committed: Sequence[str],
    *,
    catalogue: Catalogue,
    hold: HoldRow | None,
    run: RunRow | None,
    operation: OperationRow | None,
    supervisor: SupervisorRow,
    memory: MemoryRow | None,
    gateway: GatewayRow | None,
    files: Sequence[ProfileFileRow],
    now: float,
) -> Verdict:
    """Return the verdict on a status document with these parts."""
    serving = [r.name for r in rows if r.state == "serving"]
    down = supervisor.state != "up"
    no_gateway = gateway is not None and gateway.state == "down"
    missing = [name for name in committed if name not in serving]
    excused = hold is not None or run is not None or operation is not None
    why = [
        *([NOT_RUNNING] if supervisor.state == "down" else ()),
        *([NO_GATEWAY] if no_gateway else ()),
        *_hold_why(hold, now),
        *running_sentences(operation),
        *([] if operation else _run_why(run)),
        *([] if excused else _missing_why(rows, missing, catalogue)),
        *_empty_why(rows, committed, serving),
        *_stalled_why(rows),
        *_differing_why(rows),
        *_uncommitted_why(serving, committed),
        *filter(None, map(_file_why, files)),
        *_memory_why(memory),
    ]
    if not serving:
        return Verdict(state="nothing", exit=int(Exit.NOTHING_SERVING), why=why)
    is_missed = bool(missing) and not excused
    is_broken = any(row.stall or breaks_promise(row) for row in rows)
    if down or no_gateway or is_missed or is_broken:
        return Verdict(state="degraded", exit=int(Exit.FAILED), why=why)
    return Verdict(state="serving", exit=int(Exit.OK), why=why)


def _hold_why(hold: HoldRow | None, now: float) -> list[str]:
    if hold is None:
        return []
    if not hold.kept:
        return ["held by hand until a switch, a start or a boot: appliance start ends it"]
    until = hold.until_unix_s
    by = f" by {requester_name(hold.requested_by)}" if hold.requested_by else ""
    if until is None:
        return [f"on hold{by} without an end, also across reboots: appliance start ends it"]
    return [f"on hold{by} for another {age(until - now)}: appliance start ends it now"]


def _run_why(run: RunRow | None) -> list[str]:
    """Return a sentence on a command whose operation is not known."""
    if run is None:
        return []
    return [f"{run.text} runs in place of models: sudo systemctl stop {RUN_UNIT} ends it"]


def _missing_why(
    rows: Sequence[ProfileRow], missing: Sequence[str], catalogue: Catalogue
) -> list[str]:
    known = {r.name: r for r in rows}
    busy = frozenset(r.name for r in rows if r.state not in _IDLE)
    return [
        _why_missing(known[name], [known[r] for r in sorted(busy & in_the_way(name, catalogue))])
        if name in known
        else f"{name} is committed but not applied: appliance uncommit {name}, or put its profile back and"
        " sudo appliance apply"
        for name in missing
    ]


def _why_missing(row: ProfileRow, rivals: Sequence[ProfileRow]) -> str:
    """Return why a committed profile does not serve; `rivals` run, or start, in its place."""
    name, note = row.name, row.note
    if rivals and all(rival.state != "serving" for rival in rivals):
        reason = f"{rivals[0].name} is {rivals[0].state} in its place"
        note = f"{reason}; {note}" if note else reason
    if ended_badly(row.state):
        return f"{name} is committed but {row.state} ({note}): appliance logs {name}"
    if row.state == "stopped":
        reason = f" ({note})" if note else ""
        # A start evicts no profile.
        verb = "switch" if rivals else "start"
        return f"{name} is committed but stopped{reason}: appliance {verb} {name}"
    return f"{name} is committed but still {row.state}: appliance wait {name}"


def _empty_why(
    rows: Sequence[ProfileRow], committed: Sequence[str], serving: Sequence[str]
) -> list[str]:
    if not rows:
        return ["no profile is applied: sudo appliance apply"]
    if not committed and not serving:
        return ["no profile is committed: appliance switch NAME"]
    return []


def _stalled_why(rows: Sequence[ProfileRow]) -> list[str]:
    return [
        f"{row.name} makes {row.note}: appliance restart {row.name}" for row in rows if row.stall
    ]


def _differing_why(rows: Sequence[ProfileRow]) -> list[str]:
    return [
        f"{row.name} {note}: appliance verify {row.name}"
        for row in rows
        if (note := difference_note(row.verification))
    ]


def _uncommitted_why(serving: Sequence[str], committed: Sequence[str]) -> list[str]:
    return [
        f"{name} serves but is not committed: after a reboot "
        f"{joined(committed)} will (appliance switch {name} commits it)"
        for name in serving
        if name not in committed
    ]


def _file_why(row: ProfileFileRow) -> str:
    """Return a sentence on a profile's file; empty: the profile's own note has it."""
    file = row.file.rpartition("/")[2]
    match row.state:
        case "unapplied":
            return f"{file} is not applied: sudo appliance apply"
        case "removed":
            return f"{file} is gone, and {row.name} still applied: sudo appliance apply"
        case "faulty":
            return row.text.partition("\n")[0]
        case _:
            return ""


def _memory_why(memory: MemoryRow | None) -> list[str]:
    """Return a sentence on a driver that hangs: running models continue, and nothing can start."""
    if memory is None or memory.gpu_state != GpuState.HUNG:
        return []
    return [f"{memory.gpu_error}: running models continue, no start is admitted"]
