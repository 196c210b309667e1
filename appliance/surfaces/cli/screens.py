"""The status document as people read it."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

from appliance.planning.status_document import ProfileRow, StatusDocument
from appliance.planning.wording import age, duration, joined, size, size_of_total
from appliance.surfaces.cli.reading import Json, number_in, objects_in, text_in, texts_in
from appliance.surfaces.cli.terminal import Style, Terminal

_GLYPHS: Final = {
    "serving": "●",
    "loading": "◐",
    "stopping": "◐",
    "restarting": "◐",
    "failed": "✗",
    "refused": "✗",
    "stopped": "○",
}
_STYLES: Final = {
    "serving": Style.GREEN,
    "loading": Style.YELLOW,
    "stopping": Style.YELLOW,
    "restarting": Style.YELLOW,
    "failed": Style.RED,
    "refused": Style.RED,
    "stopped": Style.DIM,
}
_VERDICT_STYLES: Final = {
    "serving": Style.PLAIN,
    "degraded": Style.YELLOW,
    "nothing": Style.RED,
}
_INDENT: Final = "    "
_SHORT: Final = frozenset({"stopped"})
"""States that one line says everything about."""


def show_status(document: StatusDocument, terminal: Terminal, *, now: float) -> None:
    """The whole screen of `appliance status`."""
    terminal.line(header(document))
    terminal.line()
    rows = _by_interest(document["profiles"])
    widths = _widths(rows)
    for row in rows:
        _show_profile(row, terminal, widths, now=now)
    closing = [*_operations(document, now), *_unread(document), *_why(document, terminal)]
    if closing and rows:
        terminal.line()
    for line in closing:
        terminal.line(line)


def show_one(row: ProfileRow, terminal: Terminal, *, now: float) -> None:
    """The part of the screen about one profile."""
    _show_profile(row, terminal, _widths([row]), now=now)


def show_list(rows: Sequence[ProfileRow], terminal: Terminal) -> None:
    """One line a profile: `appliance list`."""
    widths = _widths(rows)
    for row in rows:
        committed = "committed" if row["committed"] else ""
        terminal.line(f"{_columns(row, terminal, widths)}  {committed:9}  {row['description']}")


def header(document: StatusDocument) -> str:
    """Host, hardware and supervisor in one line."""
    parts = [document["host"], *_memory(document["memory"] or {}), _supervisor(document)]
    return " · ".join(parts)


def _supervisor(document: StatusDocument) -> str:
    supervisor = document["supervisor"]
    if supervisor["state"] == "down":
        return f"appliance {document['version']}, supervisor down"
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


def _by_interest(rows: Iterable[ProfileRow]) -> list[ProfileRow]:
    """What runs first, then what should, then by name; retired ones last."""
    return sorted(
        rows,
        key=lambda r: (
            r["state"] in _SHORT and r["mark"] == "retired",
            r["state"] in _SHORT,
            not r["committed"],
            r["name"],
        ),
    )


def _widths(rows: Iterable[ProfileRow]) -> tuple[int, int]:
    listed = list(rows)
    return (
        max((len(r["name"]) for r in listed), default=0),
        max((len(_mark(r)) for r in listed), default=0),
    )


def _columns(row: ProfileRow, terminal: Terminal, widths: tuple[int, int]) -> str:
    state = row["state"]
    retired = row["mark"] == "retired" and state == "stopped"
    glyph = terminal.paint("⊘" if retired else _GLYPHS[state], _STYLES[state])
    name = terminal.paint(f"{row['name']:{widths[0]}}", Style.BOLD)
    mark = f"  {_mark(row):{widths[1]}}" if widths[1] else ""
    shown = terminal.paint(f"{state:10}", _STYLES[state])
    return f"{glyph} {name}{mark}  {shown}  {row['engine']} {_port(row)}"


def _mark(row: ProfileRow) -> str:
    mark = row["mark"] or ""
    return "LIVE" if mark == "live" else mark


def _port(row: ProfileRow) -> str:
    endpoint = row["endpoint"]
    return endpoint.removeprefix("127.0.0.1") if endpoint.startswith("127.") else endpoint


def _show_profile(
    row: ProfileRow, terminal: Terminal, widths: tuple[int, int], *, now: float
) -> None:
    since = _since(row["since_unix_s"], now) if row["state"] == "serving" else ""
    terminal.line(f"{_columns(row, terminal, widths)}  {since}")
    if row["state"] not in _SHORT and row["status_text"]:
        terminal.line(f"{_INDENT}{row['status_text']}")
    if row["note"]:
        terminal.line(f"{_INDENT}{terminal.paint(row['note'], Style.YELLOW)}")


def _since(unix_s: float | None, now: float) -> str:
    if unix_s is None:
        return ""
    return f"since {time.strftime('%a %H:%M', time.localtime(unix_s))} ({age(now - unix_s)})"


def _operations(document: StatusDocument, now: float) -> Iterable[str]:
    running, last = document["operation"], document["last_operation"]
    if running is not None:
        elapsed = duration(number_in(running, "elapsed_s") or 0.0)
        back = "rolling back, " if running.get("rolling_back") else ""
        said = text_in(running, "text")
        yield (
            f"{_what(running)}: {back}{text_in(running, 'phase') or 'starting'}, {elapsed}"
            f"{f' ({said})' if said else ''}"
        )
    elif last is not None:
        finished = number_in(last, "finished_unix_s")
        when = f" {age(now - finished)} ago" if finished is not None else ""
        took = number_in(last, "ms")
        spent = f" in {duration(took / 1000)}" if took is not None else ""
        yield f"last: {_what(last)}{when}: {_outcome(last)}{spent}"


def _outcome(last: Json) -> str:
    outcome = text_in(last, "outcome")
    return outcome if outcome == "done" else f"{outcome} ({text_in(last, 'message')})"


def _what(operation: Json) -> str:
    kind = text_in(operation, "kind")
    names = joined(texts_in(operation, "target"), nothing="")
    return f"switch to {names}" if kind == "switch" else f"{kind} {names}".rstrip()


def _why(document: StatusDocument, terminal: Terminal) -> Iterable[str]:
    verdict = document["verdict"]
    for sentence in verdict["why"]:
        yield terminal.paint(sentence, _VERDICT_STYLES[verdict["state"]])


def _unread(document: StatusDocument) -> Iterable[str]:
    """GPUs that the supervisor could not read; without one nobody asked them."""
    error = text_in(document["memory"] or {}, "gpu_error")
    if error and document["supervisor"]["state"] == "up":
        yield f"GPUs cannot be read: {error}"
