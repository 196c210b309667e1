"""Texts about the box and its profiles: head, operations, traffic, holders of memory."""

from __future__ import annotations

import time

from appliance.model.amounts import age, duration, size_of_total
from appliance.model.record import Record
from appliance.model.wording import joined, requester_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    from appliance.model.status import (
        EndedOperationRow,
        GpuRow,
        ListeningRow,
        MemoryRow,
        OperationHead,
        OperationRow,
        ProfileRow,
        StatusDocument,
        TrafficRow,
    )

STATE_GLYPHS: Final = {
    "serving": "●",
    "unresponsive": "✗",
    "loading": "◐",
    "stopping": "◐",
    "restarting": "◐",
    "failed": "✗",
    "refused": "✗",
    "stopped": "○",
}
PHASE_LABELS: Final = {
    "hold": "holding requests",
    "drain": "draining",
    "stop": "stopping",
    "release": "waiting for memory",
    "run": "running",
    "start": "starting",
    "load": "loading",
    "verify": "comparing",
    "commit": "committing",
}
"""Words for phases whose name does not say what happens."""
_MARK_TEXTS: Final = {"live": "people told", "standby": "nobody told"}
SHORT: Final = frozenset({"stopped"})
"""States that one line describes."""
_GIB: Final = 1 << 30
_MOST_HOLDERS: Final = 4
"""Number of holders shown by name; a desktop has a dozen small ones."""
_WORTH_SAYING_BYTES: Final = 512 << 20
"""Memory below which none is shown: a driver's memory for contexts and displays belongs to no
process."""
_OLD_S: Final = 30.0
"""Age from which figures are marked as old."""


def header(document: StatusDocument) -> str:
    """Return host, hardware and supervisor in one line."""
    parts = [document.host, *_memory(document.memory), _supervisor(document)]
    section = document.alerts
    if section:
        well = sum(one.get("ended_unix_s") is not None for one in section.alerts)
        parts.append(f"alerts {len(section.alerts) + section.left_off - well}")
    return " · ".join(parts)


def _supervisor(document: StatusDocument) -> str:
    supervisor = document.supervisor
    if supervisor.state == "down":
        return f"appliance {document.version}, supervisor down"
    if supervisor.state == "waiting":
        return f"appliance {document.version}, supervisor waits for its settings"
    uptime = supervisor.uptime_s
    since = "" if uptime is None else f" {age(uptime)}"
    return f"supervisor {document.version} up{since}"


def _memory(memory: MemoryRow | None) -> Iterable[str]:
    if memory is None:
        return
    for gpu in memory.gpus:
        if gpu.total_bytes:
            used_bytes = gpu.total_bytes - gpu.free_bytes
            yield f"{gpu.name or 'GPU'} {size_of_total(used_bytes, gpu.total_bytes)}"
    total_bytes = memory.ram_total_bytes
    if total_bytes:
        yield f"RAM {size_of_total(total_bytes - memory.ram_available_bytes, total_bytes)}"


def by_interest(rows: Iterable[ProfileRow]) -> list[ProfileRow]:
    """Return rows that run, then committed ones, then the others by name; retired ones last."""
    return sorted(
        rows,
        key=lambda r: (
            r.state in SHORT and r.mark == "retired",
            r.state in SHORT,
            not r.committed,
            r.name,
        ),
    )


def mark_text(mark: str) -> str:
    """Return what a mark means: whether anybody is told of faults; empty: it is not known."""
    return _MARK_TEXTS.get(mark, mark)


def committed_text(row: ProfileRow) -> str:
    return "committed" if row.committed else ""


def port_text(row: ProfileRow) -> str:
    endpoint = row.endpoint
    return endpoint.removeprefix("127.0.0.1") if endpoint.startswith("127.") else endpoint


def since_text(uptime_s: float | None, now: float) -> str:
    if uptime_s is None:
        return ""
    began = time.localtime(now - uptime_s)
    return f"since {time.strftime('%a %H:%M', began)} ({age(uptime_s)})"


def watch_lines(document: StatusDocument) -> Iterable[str]:
    """Return the line on watches that are not retired."""
    rows = document.watches
    shown = [f"{row.name} ({mark_text(row.mark)})" for row in rows if row.mark != "retired"]
    if shown:
        yield f"watched {' · '.join(shown)}"


def operation_lines(document: StatusDocument) -> Iterable[str]:
    running, last = document.operation, document.last_change or document.last_operation
    if running is not None:
        elapsed = duration(running.elapsed_s)
        back = "rolling back, " if running.rolling_back else ""
        said = "; ".join(filter(None, (running.text, progress_text(running))))
        yield (
            f"{operation_text(running)}{_by(running)}: {back}"
            f"{running.phase or 'starting'}, {elapsed}"
            f"{f' ({said})' if said else ''}"
        )
    elif last is not None:
        when = "" if last.age_s is None else f" {age(last.age_s)} ago"
        yield (
            f"last: {operation_text(last)}{_by(last)}{when}: {_outcome(last)}"
            f" in {duration(last.ms / 1000)}{_meanwhile(last, document)}"
        )


def _by(operation: OperationHead) -> str:
    requester = operation.requested_by
    return f" by {requester_name(requester)}" if requester else ""


def _meanwhile(last: EndedOperationRow, document: StatusDocument) -> str:
    """Return that all profiles of a failed repair serve now, because systemd has gone on; else empty."""
    names = set(last.target)
    serving = {row.name for row in document.profiles if row.state == "serving"}
    is_over = last.kind == "repair" and last.outcome != "done"
    if not is_over or not names or not names <= serving:
        return ""
    return f"; {'they serve' if names - {min(names)} else 'it serves'} now"


def progress_text(operation: OperationRow) -> str:
    """Return how far the phase of a running operation is, such as ``62 % of the usual 48 s``; empty: not known."""
    share, usual_s = operation.progress, operation.usual_s
    if share is None or usual_s is None:
        return ""
    if operation.phase_s > usual_s:
        return f"longer than the usual {duration(usual_s)}"
    return f"{share * 100:.0f} % of the usual {duration(usual_s)}"


def run_lines(document: StatusDocument, now: float) -> Iterable[str]:
    run = document.run
    if run is not None:
        state = "" if run.state == "running" else f" ({run.state})"
        since = since_text(run.uptime_s, now)
        yield f"run: {run.text}{state} {since}".rstrip()


def _outcome(last: EndedOperationRow) -> str:
    return last.outcome if last.outcome == "done" else f"{last.outcome} ({last.message})"


def operation_text(operation: OperationHead) -> str:
    names = joined(operation.target, nothing="")
    return (
        f"switch to {names}" if operation.kind == "switch" else f"{operation.kind} {names}".rstrip()
    )


def unread_lines(document: StatusDocument) -> Iterable[str]:
    """Return a line on GPUs that the supervisor could not read, or not recently."""
    memory = document.memory
    if document.supervisor.state != "up" or memory is None:
        return
    # A driver that hangs is part of the verdict.
    if memory.gpu_error and memory.gpu_state != "hung":
        yield f"GPUs cannot be read: {memory.gpu_error}"
    age_s = memory.sampled_age_s
    if memory.gpus and age_s is not None and age_s > _OLD_S:
        yield f"GPUs as they were {age(age_s)} ago"


class HolderAmount(Record):
    """Memory that one holder has on a GPU."""

    label: str
    """Profile, process with its pid, or what stands for several."""
    held_bytes: float | None
    """None: the driver does not say."""
    is_known: bool = True
    """Whether one holder has it; False: the small ones together, or memory of no process."""


def holder_amounts(gpu: GpuRow) -> Iterable[HolderAmount]:
    """Return memory by holder, the largest first: a profile once, foreign processes with their pid."""
    held: dict[str, float | None] = {}
    for holder in gpu.holders or ():
        pid, comm = holder.pid, holder.comm
        label = holder.profile or (f"{comm}({pid})" if comm else f"process {pid}, which is gone")
        more, before = holder.held_bytes, held.get(label, 0.0)
        held[label] = None if more is None or before is None else before + more
    ranked = sorted(held.items(), key=lambda item: -(item[1] or 0))
    yield from (HolderAmount(label, amount) for label, amount in ranked[:_MOST_HOLDERS])
    if rest := ranked[_MOST_HOLDERS:]:
        amount = sum(amount or 0 for _, amount in rest)
        yield HolderAmount(f"{len(rest)} more", amount, is_known=False)
    unattributed = gpu.unattributed_bytes or 0
    if unattributed >= _WORTH_SAYING_BYTES:
        yield HolderAmount("unattributed", unattributed, is_known=False)


def holder_shares(gpu: GpuRow) -> Iterable[str]:
    """Return the holders' amounts in text, in GiB: ``vllm 11.1``."""
    for holder in holder_amounts(gpu):
        held = holder.held_bytes
        yield holder.label if held is None else f"{holder.label} {held / _GIB:.1f}"


_RESTART: Final = "sudo systemctl restart appliance-gateway.service"


def gateway_lines(document: StatusDocument) -> Iterable[str]:
    """Return the line on where clients are served; of a gateway that is down the verdict speaks."""
    listening = None if document.gateway is None else document.gateway.listening
    if listening is not None and listening.addresses:
        parts = [", ".join(listening.addresses), *_listening_parts(listening)]
        yield f"gateway {' · '.join(parts)}"


def _listening_parts(listening: ListeningRow) -> Iterable[str]:
    tls, absent, keys = listening.tls, listening.absent, listening.keys
    if tls in {"on", "renewed"}:
        yield "TLS beyond this machine"
    if absent:
        yield f"{joined(absent)} {'are' if absent[1:] else 'is'} not there yet"
    if keys:
        yield "1 key" if keys == 1 else f"{keys} keys"
    # What has a command stands last: it is copied to the end of the line.
    if listening.closed:
        yield "closed to other machines until there is a key: appliance key add NAME"
    if tls == "renewed":
        yield f"the renewed certificate waits for a restart: {_RESTART}"
    if tls == "waiting":
        yield f"TLS waits for a restart: {_RESTART}"


def traffic_text(document: StatusDocument, name: str) -> str:
    """Return the line of profile `name`; empty: no traffic."""
    rows = () if document.gateway is None else document.gateway.profiles
    row = next((row for row in rows if row.name == name), None)
    parts = [] if row is None else list(_traffic_parts(row))
    return f"traffic {' · '.join(parts)}" if parts else ""


def _traffic_parts(row: TrafficRow) -> Iterable[str]:
    if row.requests:
        waiting = f", {row.queued} waiting" if row.queued else ""
        errors = f", {row.errors} failed" if row.errors else ""
        yield f"{row.in_flight} in flight{waiting}, {row.requests} so far{errors}"
    if row.tok_s:
        yield f"{row.tok_s:.1f} tok/s"
    if row.ttft_ms is not None and row.ttft_ms.p50:
        yield f"TTFT {row.ttft_ms.p50 / 1000:.2f} s"
    if row.engine is not None and row.engine.queued:
        yield f"{row.engine.queued} queued in the engine"
    if row.engine is not None and row.engine.kv_cache:
        yield f"KV cache {row.engine.kv_cache * 100:.0f} %"
