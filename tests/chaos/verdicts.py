"""Verdicts on a box that was left alone: its required state, and whether its texts came true.

A box has come to rest when it serves what is committed, or when its status says precisely why
not. "Precisely" is taken seriously: a refusal must name what is held, a model that is down by
hand must have been put down by hand in this run, a model started by hand must be called so.
"""

import fcntl
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from tests.chaos.clients import Told
from tests.chaos.scenario import LEASES, MODELS, STATE
from tests.chaos.world import World

JOURNAL: Final = "/run/appliance-supervisor/operation.json"
"""File in which operations wait while the disk is full."""
NAMES_A_HOLDER: Final = re.compile(r"held by .*\bpid \d+|GiB|MiB")
"""Pattern of a refusal that names a holder, or the amount that is missing."""
NAMES_AN_ENDING: Final = re.compile(
    r"exited with status \d+|ended by itself|killed by|no progress|failed too often|ran out of memory"
)
ENDED_BY_SOMEBODY: Final = re.compile(
    r"^stopped by hand(; |$)|, then stopped$|: cancelled$|^not started since the supervisor began$"
)
FORGOTTEN: Final = re.compile(r"^not started since the supervisor began$")
EVICTED: Final = re.compile(r"^evicted by \S+, which ")
NAMES_A_FAILURE: Final = re.compile(r"^(start|switch|restart|repair) (failed|refused): .+")


class Rest(StrEnum):
    """State in which a box has come to rest."""

    SERVING = "serving"
    BY_HAND = "serving by hand"
    HELD = "held"
    STOPPED = "stopped by hand"
    REFUSED = "refused"
    FAILED = "failed"
    UNCLEAR = "unclear"
    """The box has not come to rest, or does not say why."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One look at a box."""

    rest: Rest
    why: str


def judge(world: World, document: Mapping[str, Any] | None) -> Judged:
    """Compare the box's status with the kernel's facts."""
    if document is None:
        return Judged(Rest.UNCLEAR, "no status")
    rows = {row["name"]: row for row in document["profiles"]}
    serving = sorted(n for n, row in rows.items() if row["state"] == "serving")
    why = "; ".join(document["verdict"]["why"])
    if document["supervisor"]["state"] != "up":
        return Judged(Rest.UNCLEAR, "no supervisor")
    if document["operation"] is not None:
        return Judged(Rest.UNCLEAR, f"an operation runs: {document['operation']}")
    moving = [n for n, r in rows.items() if r["state"] in {"stopping", "loading"}]
    if moving and not (world.memory_kept or world.trainers):
        return Judged(Rest.UNCLEAR, f"{', '.join(moving)} is still {rows[moving[0]]['state']}")
    owners = sorted(world.observer.owners)
    if owners != serving:
        return Judged(Rest.UNCLEAR, f"{serving} serve but {owners} own")
    return _at_rest(world, document, rows, serving, why)


def _at_rest(
    world: World,
    document: Mapping[str, Any],
    rows: Mapping[str, Mapping[str, Any]],
    serving: Sequence[str],
    why: str,
) -> Judged:
    committed = document["committed"]
    if not committed:
        return Judged(Rest.UNCLEAR, "nothing is committed")
    if document["hold"]:
        right = (world.may_be_held and not serving and "hold" in why) or "held" in why
        return Judged(Rest.HELD if right else Rest.UNCLEAR, why or "on hold without a word")
    missing = [n for n in committed if n not in serving]
    for name in serving:
        if name not in committed and f"{name} serves but is not committed" not in why:
            return Judged(Rest.UNCLEAR, f"{name} serves and is not said to be uncommitted: {why}")
    if not missing:
        return Judged(Rest.SERVING if set(serving) == set(committed) else Rest.BY_HAND, why)
    found = [
        Judged(Rest.REFUSED, why)
        if _waits_for_memory(rows, name, why)
        else _missing(world, rows[name], why, by_hand=bool(serving))
        for name in missing
    ]
    return next((f for f in found if f.rest is Rest.UNCLEAR), found[0])


def _waits_for_memory(rows: Mapping[str, Mapping[str, Any]], name: str, why: str) -> bool:
    """Whether a rival that was started by hand waits for memory in the place of a committed model."""
    rival = re.search(rf"{re.escape(name)} is committed but stopped \((\S+) is \w+ in its", why)
    return rival is not None and _is_late(rows[rival[1]])


def _is_late(row: Mapping[str, Any]) -> bool:
    """Systemd tries again and again while memory is late: what the gate waits for is in its words."""
    text = row["status_text"]
    if row["state"] == "restarting":
        return NAMES_A_HOLDER.search(row["note"] or "") is not None
    late = row["state"] == "loading" and text.startswith("waiting for memory: ")
    return late and NAMES_A_HOLDER.search(text) is not None


def _missing(world: World, row: Mapping[str, Any], why: str, *, by_hand: bool) -> Judged:
    """Return why one committed model does not serve."""
    name, note = row["name"], row["note"] or ""
    state = row["state"]
    if f"{name} is committed but" not in why:
        return Judged(Rest.UNCLEAR, f"{name} does not serve, and the status does not say so: {why}")
    refused = state in {"refused", "restarting", "failed"} and NAMES_A_HOLDER.search(note)
    if refused or _is_late(row):
        return Judged(Rest.REFUSED, why)
    if state == "stopped" and ENDED_BY_SOMEBODY.search(note) and world.may_be_stopped:
        return Judged(Rest.STOPPED, why)
    reason = {"failed": NAMES_AN_ENDING, "stopped": NAMES_A_FAILURE}.get(state)
    if reason is not None and reason.search(note):
        return Judged(Rest.FAILED, why)
    if state == "stopped" and by_hand:
        return Judged(Rest.BY_HAND, why)
    evicted = state == "stopped" and world.may_be_evicted and _is_repaired(world, name, note)
    return Judged(Rest.FAILED if evicted else Rest.UNCLEAR, f"{name} is {state} ({note}): {why}")


def _is_repaired(world: World, name: str, note: str) -> bool:
    """Whether a repair has been tried of a model that nobody stopped: after one there are pauses.

    Only one whose end systemd has forgotten, because no supervisor ran then, may be left alone.
    """
    if not EVICTED.search(note):
        return FORGOTTEN.search(note) is not None
    repairs = (row["target"] for row in rows_of(world).values() if row["kind"] == "repair")
    return any(name in json.loads(target) for target in repairs)


def unlocked(world: World) -> Iterator[str]:
    """Return the locks that owners lack on their claims, a sentence each."""
    for name in world.observer.owners:
        for device in sorted(MODELS[name].claim.devices):
            path = Path(f"/proc/{world.box.leader}/root{LEASES}/{device}")
            if not _is_locked(path):
                yield f"{name} owns {device} and holds no lock on it"


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def status(world: World) -> Mapping[str, Any] | None:
    """The box's own status document; None: none could be had."""
    text = world.run("appliance", "status", "--json")
    start = text.find("{")
    try:
        document: Mapping[str, Any] = json.JSONDecoder().raw_decode(text[start:])[0]
    except (ValueError, IndexError):
        return None
    return document if "verdict" in document else None


# --- operations ----------------------------------------------------------------------------


# Its own program reads them in the box: a second one must see the same write-ahead log.
_ROWS: Final = """
import json, pathlib, sqlite3, sys
database, journal = sys.argv[1], pathlib.Path(sys.argv[2])
with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
    connection.row_factory = sqlite3.Row
    rows = [dict(row) for row in connection.execute("SELECT * FROM operations")]
rows += json.loads(journal.read_text())["waiting"] if journal.exists() else []
print(json.dumps(rows))
"""


def rows_of(world: World) -> dict[int, Mapping[str, Any]]:
    """The history of operations by number: on the box's disk, or waiting for room on it."""
    out = world.run("/usr/bin/python3", "-c", _ROWS, f"{STATE}/state.sqlite", JOURNAL)
    try:
        return {row["id"]: row for row in json.loads(out)}
    except ValueError:
        return {}


def broken_words(world: World, told: Sequence[Told], committed: Sequence[str]) -> Iterator[str]:
    """Return statements of the command that did not come true, a sentence each.

    Args:
        world: The box, at rest.
        told: What was told since the last rest.
        committed: What is committed now.
    """
    rows = rows_of(world)
    for one in told:
        if one.cut or one.operation is None:
            continue
        yield from _broken_end(one, rows if one.boot == world.boots else None)
    yield from _broken_commitment(told, committed)


def _broken_end(one: Told, rows: Mapping[int, Mapping[str, Any]] | None) -> Iterator[str]:
    """Return the fault of an operation's end; `rows` is None when a reboot came since."""
    end = one.end
    if end is not None and one.exit is not None and (one.exit == 0) != (end.get("exit") == 0):
        yield f"the exit status {one.exit} contradicts the end: {one}"
    if rows is None:
        return
    row = rows.get(one.operation or 0)
    if end is None:
        if row is None or not row["outcome"]:
            yield f"accepted, and never ended: {one}"
        return
    # On a disk that was full at a boot numbers began anew, and the row has got another one.
    keys = ["kind", "outcome"]
    if one.words[0] != "cancel":  # who cancels is told the end in other words
        keys.append("message")
    if row is None or [end.get(k) for k in keys] in ([r[k] for k in keys] for r in rows.values()):
        return
    yield f"the row says {row['kind']} {row['outcome']}, {row['message']}: {one}"


def _broken_commitment(told: Sequence[Told], committed: Sequence[str]) -> Iterator[str]:
    """A switch that was told done is committed, unless a later one may be in its place.

    One whose client lost the supervisor before it heard anything may have been accepted.
    """
    done: Told | None = None
    open_: list[str] = []
    switches = [one for one in told if one.words[0] == "switch"]
    for one in sorted(switches, key=lambda t: (t.boot, t.operation or 0)):
        if one.operation is None:
            continue
        if one.end is None:
            open_.append(one.words[1])
        elif one.end.get("outcome") == "done":
            done, open_ = one, []
    if done is None or done.words[1] in committed:
        return
    for one in switches:
        if one.operation is None and one.end is None and one.began_s >= done.began_s:
            open_.append(one.words[1])
    if not any(name in committed for name in open_):
        yield f"{list(committed)} is committed, but this was told: {done}"
