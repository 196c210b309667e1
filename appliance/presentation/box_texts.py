"""Texts about the box and its profiles: head, operations, traffic, holders of memory."""

from __future__ import annotations

import time

from appliance.model.amounts import age, duration, size, size_of_total
from appliance.model.record import Record
from appliance.model.wording import joined, requester_name
from appliance.wire.json_values import Json, number_in, object_in, objects_in, text_in, texts_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Final

    from appliance.status.document import ProfileRow, StatusDocument

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
    parts = [document["host"], *_memory(document["memory"] or {}), _supervisor(document)]
    section = document.get("alerts")
    if section is not None:
        well = sum(one.get("ended_unix_s") is not None for one in section["alerts"])
        parts.append(f"alerts {len(section['alerts']) + section['left_off'] - well}")
    return " · ".join(parts)


def _supervisor(document: StatusDocument) -> str:
    supervisor = document["supervisor"]
    if supervisor["state"] == "down":
        return f"appliance {document['version']}, supervisor down"
    if supervisor["state"] == "waiting":
        return f"appliance {document['version']}, supervisor waits for its settings"
    uptime = supervisor["uptime_s"]
    since = "" if uptime is None else f" {age(uptime)}"
    return f"supervisor {document['version']} up{since}"


def _memory(memory: Json) -> Iterable[str]:
    for gpu in objects_in(memory, "gpus"):
        total, free = number_in(gpu, "total_bytes"), number_in(gpu, "free_bytes")
        name = text_in(gpu, "name") or "GPU"
        if total and free is not None:
            yield f"{name} {size_of_total(total - free, total)}"
        elif total:
            yield f"{name} {size(total)}"
    total, free = number_in(memory, "ram_total_bytes"), number_in(memory, "ram_available_bytes")
    if total and free is not None:
        yield f"RAM {size_of_total(total - free, total)}"


def by_interest(rows: Iterable[ProfileRow]) -> list[ProfileRow]:
    """Return rows that run, then committed ones, then the others by name; retired ones last."""
    return sorted(
        rows,
        key=lambda r: (
            r["state"] in SHORT and r["mark"] == "retired",
            r["state"] in SHORT,
            not r["committed"],
            r["name"],
        ),
    )


def mark_text(mark: str) -> str:
    """Return what a mark means: whether anybody is told of faults; empty: it is not known."""
    return _MARK_TEXTS.get(mark, mark)


def committed_text(row: ProfileRow) -> str:
    return "committed" if row["committed"] else ""


def port_text(row: ProfileRow) -> str:
    endpoint = row["endpoint"]
    return endpoint.removeprefix("127.0.0.1") if endpoint.startswith("127.") else endpoint


def since_text(uptime_s: float | None, now: float) -> str:
    if uptime_s is None:
        return ""
    began = time.localtime(now - uptime_s)
    return f"since {time.strftime('%a %H:%M', began)} ({age(uptime_s)})"


def watch_lines(document: StatusDocument) -> Iterable[str]:
    """Return the line on watches that are not retired."""
    rows = objects_in(document, "watches")  # absent in the document of an older supervisor
    marks = [(text_in(row, "name"), text_in(row, "mark")) for row in rows]
    shown = [f"{name} ({mark_text(mark)})" for name, mark in marks if mark != "retired"]
    if shown:
        yield f"watched {' · '.join(shown)}"


def operation_lines(document: StatusDocument) -> Iterable[str]:
    # The field is absent in the document of an older supervisor.
    running, last = document["operation"], document.get("last_change") or document["last_operation"]
    if running is not None:
        elapsed = duration(number_in(running, "elapsed_s") or 0.0)
        back = "rolling back, " if running.get("rolling_back") else ""
        said = "; ".join(filter(None, (text_in(running, "text"), progress_text(running))))
        yield (
            f"{operation_text(running)}{_by(running)}: {back}"
            f"{text_in(running, 'phase') or 'starting'}, {elapsed}"
            f"{f' ({said})' if said else ''}"
        )
    elif last is not None:
        age_s = number_in(last, "age_s")
        when = f" {age(age_s)} ago" if age_s is not None else ""
        took = number_in(last, "ms")
        spent = f" in {duration(took / 1000)}" if took is not None else ""
        yield (
            f"last: {operation_text(last)}{_by(last)}{when}: {_outcome(last)}{spent}"
            f"{_meanwhile(last, document)}"
        )


def _by(operation: Json) -> str:
    requester = text_in(operation, "requested_by")
    return f" by {requester_name(requester)}" if requester else ""


def _meanwhile(last: Json, document: StatusDocument) -> str:
    """Return that all profiles of a failed repair serve now, because systemd has gone on; else empty."""
    names = set(texts_in(last, "target"))
    serving = {row["name"] for row in document["profiles"] if row["state"] == "serving"}
    is_over = text_in(last, "kind") == "repair" and text_in(last, "outcome") != "done"
    if not is_over or not names or not names <= serving:
        return ""
    return f"; {'they serve' if names - {min(names)} else 'it serves'} now"


def progress_text(operation: Json) -> str:
    """Return how far the phase of a running operation is, such as ``62 % of the usual 48 s``; empty: not known."""
    share, usual_s = number_in(operation, "progress"), number_in(operation, "usual_s")
    if share is None or usual_s is None:
        return ""
    if (number_in(operation, "phase_s") or 0.0) > usual_s:
        return f"longer than the usual {duration(usual_s)}"
    return f"{share * 100:.0f} % of the usual {duration(usual_s)}"


def run_lines(document: StatusDocument, now: float) -> Iterable[str]:
    run = document.get("run")  # The field is absent in the document of an older supervisor.
    if run is not None:
        state = "" if run["state"] == "running" else f" ({run['state']})"
        since = since_text(run["uptime_s"], now)
        yield f"run: {run['text']}{state} {since}".rstrip()


def _outcome(last: Json) -> str:
    outcome = text_in(last, "outcome")
    return outcome if outcome == "done" else f"{outcome} ({text_in(last, 'message')})"


def operation_text(operation: Json) -> str:
    kind = text_in(operation, "kind")
    names = joined(texts_in(operation, "target"), nothing="")
    return f"switch to {names}" if kind == "switch" else f"{kind} {names}".rstrip()


def unread_lines(document: StatusDocument) -> Iterable[str]:
    """Return a line on GPUs that the supervisor could not read, or not recently."""
    memory: Json = document["memory"] or {}
    if document["supervisor"]["state"] != "up":
        return
    error = text_in(memory, "gpu_error")
    # A driver that hangs is part of the verdict.
    if error and text_in(memory, "gpu_state") != "hung":
        yield f"GPUs cannot be read: {error}"
    age_s = number_in(memory, "sampled_age_s")
    if objects_in(memory, "gpus") and age_s is not None and age_s > _OLD_S:
        yield f"GPUs as they were {age(age_s)} ago"


class HolderAmount(Record):
    """Memory that one holder has on a GPU."""

    label: str
    """Profile, process with its pid, or what stands for several."""
    held_bytes: float | None
    """None: the driver does not say."""
    is_known: bool = True
    """Whether one holder has it; False: the small ones together, or memory of no process."""


def holder_amounts(holders: Sequence[Json], gpu: Json) -> Iterable[HolderAmount]:
    """Return memory by holder, the largest first: a profile once, foreign processes with their pid."""
    held: dict[str, float | None] = {}
    for holder in holders:
        pid, comm = f"{number_in(holder, 'pid') or 0:.0f}", text_in(holder, "comm")
        process = f"{comm}({pid})" if comm else f"process {pid}, which is gone"
        label = text_in(holder, "profile") or process
        more = number_in(holder, "held_bytes")
        before = held.get(label, 0.0)
        held[label] = None if more is None or before is None else before + more
    ranked = sorted(held.items(), key=lambda item: -(item[1] or 0))
    yield from (HolderAmount(label, amount) for label, amount in ranked[:_MOST_HOLDERS])
    if rest := ranked[_MOST_HOLDERS:]:
        amount = sum(amount or 0 for _, amount in rest)
        yield HolderAmount(f"{len(rest)} more", amount, is_known=False)
    unattributed = number_in(gpu, "unattributed_bytes") or 0
    if unattributed >= _WORTH_SAYING_BYTES:
        yield HolderAmount("unattributed", unattributed, is_known=False)


def holder_shares(holders: Sequence[Json], gpu: Json) -> Iterable[str]:
    """Return the holders' amounts in text, in GiB: ``vllm 11.1``."""
    for holder in holder_amounts(holders, gpu):
        held = holder.held_bytes
        yield holder.label if held is None else f"{holder.label} {held / _GIB:.1f}"


_RESTART: Final = "sudo systemctl restart appliance-gateway.service"


def gateway_lines(document: StatusDocument) -> Iterable[str]:
    """Return the line on where clients are served; of a gateway that is down the verdict speaks."""
    listening = object_in(_gateway_row(document), "listening")
    addresses = texts_in(listening, "addresses")
    if addresses:
        yield f"gateway {' · '.join([', '.join(addresses), *_listening_parts(listening)])}"


def _listening_parts(listening: Json) -> Iterable[str]:
    tls = text_in(listening, "tls")
    if tls in {"on", "renewed"}:
        yield "TLS beyond this machine"
    if absent := texts_in(listening, "absent"):
        yield f"{joined(absent)} {'are' if absent[1:] else 'is'} not there yet"
    if keys := int(number_in(listening, "keys") or 0):
        yield "1 key" if keys == 1 else f"{keys} keys"
    # What has a command stands last: it is copied to the end of the line.
    if listening.get("closed"):
        yield "closed to other machines until there is a key: appliance key add NAME"
    if tls == "renewed":
        yield f"the renewed certificate waits for a restart: {_RESTART}"
    if tls == "waiting":
        yield f"TLS waits for a restart: {_RESTART}"


def _gateway_row(document: Json | StatusDocument) -> Json:
    """Return the gateway's row; empty in the document of an older supervisor."""
    return object_in(document, "gateway")


def traffic_text(document: StatusDocument, name: str) -> str:
    """Return the line of profile `name`; empty: no traffic."""
    rows = objects_in(_gateway_row(document), "profiles")
    row = next((r for r in rows if text_in(r, "name") == name), {})
    parts = [_request_part(row), *_speed_parts(row), *_engine_parts(object_in(row, "engine"))]
    said = " · ".join(part for part in parts if part)
    return f"traffic {said}" if said else ""


def _request_part(row: Json) -> str:
    total, under_way, waiting, errors = (
        int(number_in(row, key) or 0) for key in ("requests", "in_flight", "queued", "errors")
    )
    if not total:
        return ""
    now = f"{under_way} in flight" + (f", {waiting} waiting" if waiting else "")
    return f"{now}, {total} so far" + (f", {errors} failed" if errors else "")


def _speed_parts(row: Json) -> Iterable[str]:
    if speed := number_in(row, "tok_s"):
        yield f"{speed:.1f} tok/s"
    if first := number_in(object_in(row, "ttft_ms"), "p50"):
        yield f"TTFT {first / 1000:.2f} s"


def _engine_parts(engine: Json) -> Iterable[str]:
    if queued := number_in(engine, "queued"):
        yield f"{queued:.0f} queued in the engine"
    if cache := number_in(engine, "kv_cache"):
        yield f"KV cache {cache * 100:.0f} %"
