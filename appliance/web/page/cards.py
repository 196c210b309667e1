"""Cards and rows of the page: GPUs with their holders, requests, alerts, the running operation, profiles."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from appliance.model.amounts import age, duration, size, size_of_total
from appliance.model.operations import Kind, Phase
from appliance.model.status import (
    AlertSection,
    GpuRow,
    MemoryRow,
    OperationRow,
    ProfileRow,
    StatusDocument,
    TrafficRow,
)
from appliance.model.wording import joined
from appliance.presentation.alert_texts import (
    alert_severity,
    alert_text,
    silence_text,
    subject_name,
)
from appliance.presentation.box_texts import (
    PHASE_LABELS,
    SHORT,
    STATE_GLYPHS,
    by_interest,
    holder_amounts,
    mark_text,
    operation_text,
    port_text,
    progress_text,
    since_text,
    traffic_text,
)
from appliance.presentation.speed_texts import figures_text, loss_text
from appliance.status.speed_figures import speed_of
from appliance.wire.json_values import Json, number_in, object_in, objects_in, text_in, texts_in

_SHADES: Final = 6
"""Number of fills of the style sheet for holders (``fill-0`` …)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShare:
    """Part of a bar."""

    label: str
    amount: str
    """Size in text; empty: the driver does not say."""
    fill: str
    """Class of the style sheet."""
    begin: float
    """Per cent of the bar, as `width`."""
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBar:
    """One GPU."""

    title: str
    amount: str
    """Used of total, in text; empty: not known."""
    shares: tuple[MemoryShare, ...]
    note: str = ""
    """Heat, power and what slows it, in text; empty: not known."""


def memory_bars(memory: MemoryRow | None, gpus: Json | None) -> tuple[MemoryBar, ...]:
    """Return a bar for each GPU.

    Args:
        memory: Section `memory` of the status document.
        gpus: Answer of the supervisor to `gpus`; None: there is none.
    """
    samples = [object_in(sample, "evidence") for sample in objects_in(gpus or {}, "gpus")]
    evidence = {text_in(sample, "uuid"): sample for sample in samples}
    found = () if memory is None else memory.gpus
    return tuple(_bar(gpu, evidence.get(gpu.uuid, {}), several=len(found) > 1) for gpu in found)


def _bar(gpu: GpuRow, sample: Json, *, several: bool) -> MemoryBar:
    name, total = gpu.name or "GPU", gpu.total_bytes
    return MemoryBar(
        title=f"GPU {gpu.index}, {name}" if several else name,
        amount=size_of_total(gpu.used_bytes, total) if total else "",
        shares=tuple(_shares(gpu)),
        note=" · ".join(_readings(gpu, sample)),
    )


def _shares(gpu: GpuRow) -> Iterable[MemoryShare]:
    begin, shade = 0.0, 0
    for holder in holder_amounts(gpu):
        part = 100 * (holder.held_bytes or 0.0) / gpu.total_bytes if gpu.total_bytes > 0 else 0.0
        width = max(0.0, min(part, 100 - begin))
        fill = f"fill-{shade % _SHADES}" if holder.is_known else "fill-rest"
        shade += holder.is_known
        amount = "" if holder.held_bytes is None else size(holder.held_bytes)
        yield MemoryShare(
            label=holder.label,
            amount=amount,
            fill=fill,
            begin=round(begin, 2),
            width=round(width, 2),
        )
        begin += width


def _readings(gpu: GpuRow, sample: Json) -> Iterable[str]:
    if gpu.state not in {"", "ok"}:
        yield gpu.state
    if (heat := number_in(sample, "temperature_c")) is not None:
        yield f"{heat:.0f} °C"
    if (power := number_in(sample, "power_w")) is not None:
        yield f"{power:.0f} W"
    if reasons := texts_in(sample, "throttle_reasons"):
        yield f"slowed: {joined([reason.replace('_', ' ') for reason in reasons])}"


_APIS: Final = {"anthropic": "messages"}
"""Names of APIs that clients know by another one."""
_STATES: Final = {"held": "held", "sent": "waits for the engine", "tunnel": "websocket"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """One request; none of its texts are shown."""

    id: str
    profile: str
    api: str
    state: str
    age: str
    progress: str
    """Tokens or pieces so far; empty: nothing has come."""
    key: str
    """Name of the client's key; empty: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsView:
    """Requests, the oldest first."""

    rows: tuple[RequestLine, ...] = ()
    note: str = ""
    """Sentence where they are not known, or not all are shown; empty: they are."""


def requests_view(document: Json | None) -> RequestsView:
    """Return the view of the gateway's list; None: not known."""
    if document is None:
        return RequestsView(note="Not known: the gateway does not answer.")
    more = int(number_in(document, "left_off") or 0)
    return RequestsView(
        rows=tuple(_row(row) for row in objects_in(document, "requests")),
        note=f"{more} more" if more else "",
    )


def _row(row: Json) -> RequestLine:
    api, state = text_in(row, "api"), text_in(row, "state")
    return RequestLine(
        id=text_in(row, "id"),
        profile=text_in(row, "profile"),
        api=_APIS.get(api, api),
        state=_STATES.get(state, state),
        age=age(number_in(row, "age_s") or 0.0),
        progress=_progress(row),
        key=text_in(row, "key"),
    )


def _progress(row: Json) -> str:
    """Return the tokens where the answer tells them, else the pieces of a stream, else the bytes."""
    tokens, pieces = number_in(row, "tokens"), int(number_in(row, "pieces") or 0)
    if tokens is not None:
        return f"{tokens:.0f} tokens"
    if not pieces:
        return ""
    return f"{pieces} {'piece' if pieces == 1 else 'pieces'}"


_SEVERITIES: Final = frozenset({"critical", "warning", "info"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertCard:
    """Alert that is not over."""

    id: str
    subject: str
    text: str
    severity: str
    """Class of the style sheet too."""
    details: tuple[str, ...]
    likely: str
    command: str
    """Command to type; empty: none."""
    is_acked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsView:
    """Alerts and silences of the box."""

    cards: tuple[AlertCard, ...] = ()
    silences: tuple[str, ...] = ()
    note: str = ""
    """Sentence where they are not known, or not all are shown; empty: they are."""


def alerts_view(section: AlertSection | None, *, now: float) -> AlertsView:
    """Return the alerts of a status document."""
    if section is None:
        return AlertsView(note="Not known: the health agent does not answer.")
    more = section.left_off
    return AlertsView(
        cards=tuple(_cards(section, now)),
        silences=tuple(silence_text(silence, now) for silence in section.silences),
        note=f"{more} more: appliance alerts" if more else "",
    )


def _cards(section: AlertSection, now: float) -> Iterable[AlertCard]:
    for alert in section.alerts:
        yield AlertCard(
            id=text_in(alert, "alert"),
            subject=subject_name(text_in(alert, "subject")),
            text=alert_text(alert, now),
            severity=_severity(alert),
            details=tuple(texts_in(alert, "details")),
            likely=text_in(alert, "likely"),
            command=text_in(alert, "command"),
            is_acked=bool(text_in(alert, "acked_by")),
        )


def _severity(alert: Json) -> str:
    """Return the severity; another release's is none of the style sheet's classes."""
    found = alert_severity(alert)
    return found if found in _SEVERITIES else "info"


_STOPPING: Final = (Phase.PREFLIGHT, Phase.HOLD, Phase.DRAIN, Phase.STOP, Phase.RELEASE)
_STARTING: Final = (Phase.START, Phase.LOAD, Phase.WARM_UP, Phase.VERIFY)
_STEPS: Final = {
    Kind.SWITCH: (*_STOPPING, *_STARTING, Phase.COMMIT),
    Kind.START: (Phase.PREFLIGHT, Phase.HOLD, *_STARTING, Phase.COMMIT),
    Kind.STOP: (Phase.PREFLIGHT, Phase.HOLD, Phase.DRAIN, Phase.STOP, Phase.COMMIT),
    Kind.RESTART: (*_STOPPING, *_STARTING, Phase.COMMIT),
    Kind.HOLD: (*_STOPPING, Phase.COMMIT),
    Kind.REPAIR: (Phase.PREFLIGHT, *_STARTING, Phase.COMMIT),
    Kind.RUN: (*_STOPPING, Phase.RUN, *_STARTING, Phase.COMMIT),
}
"""Phases that an operation of a kind usually passes, in their order."""
_ORDER: Final = {phase.value: number for number, phase in enumerate(Phase)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStep:
    """One phase: ``done``, ``now`` or ``next``."""

    phase: str
    label: str
    state: str
    text: str = ""
    """Progress and time of the phase of now; empty for others."""
    percent: int | None = None
    """Share of the phase of now that is over; None: not known, and for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    """Operation that runs."""

    id: int
    title: str
    elapsed: str
    rolling_back: bool
    steps: tuple[OperationStep, ...]


def operation_view(operation: OperationRow) -> OperationView:
    """Return the view of the status document's `operation`."""
    return OperationView(
        id=operation.id,
        title=operation_text(operation),
        elapsed=duration(operation.elapsed_s),
        rolling_back=operation.rolling_back,
        steps=tuple(_steps(operation)),
    )


def _steps(operation: OperationRow) -> Iterable[OperationStep]:
    now = operation.phase
    kinds = {kind.value: phases for kind, phases in _STEPS.items()}
    usual = [phase.value for phase in kinds.get(operation.kind, ())]
    at = _ORDER.get(now, -1)
    for phase in sorted({*usual, *([now] if now else [])}, key=lambda p: _ORDER.get(p, at)):
        place = _ORDER.get(phase, at)
        state = "now" if phase == now else "done" if place < at else "next"
        yield OperationStep(
            phase=phase,
            label=PHASE_LABELS.get(phase, phase),
            state=state,
            text=_text(operation) if state == "now" else "",
            percent=_percent(operation) if state == "now" else None,
        )


def _text(operation: OperationRow) -> str:
    deadline_s, told = operation.deadline_s, operation.text
    bound = "" if deadline_s is None else f" of at most {duration(deadline_s)}"
    parts = [
        "" if told == PHASE_LABELS.get(operation.phase) else told,
        progress_text(operation),
        f"{duration(operation.phase_s)}{bound}",
    ]
    return " · ".join(part for part in parts if part)


def _percent(operation: OperationRow) -> int | None:
    share = operation.progress
    return None if share is None else round(100 * max(0.0, min(share, 1.0)))


_MARKS_UP: Final = frozenset({"serving", "unresponsive", "loading", "restarting"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCard:
    """One profile."""

    name: str
    description: str
    state: str
    """Class of the style sheet too."""
    glyph: str
    mark: str
    """``live``, ``standby``, ``retired``; empty: not known."""
    mark_text: str
    engine: str
    port: str
    since: str
    lines: tuple[str, ...]
    """Lines of the status screen about a profile that runs."""
    warnings: tuple[str, ...]
    """Sentences on what is wrong."""
    committed: bool
    runs: bool
    can_start: bool
    """Whether a switch or a start makes sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCard:
    """Requests of one profile or key at the gateway."""

    name: str
    in_flight: int
    held: int
    requests: int
    errors: int
    tok_s: str
    first_token: str
    quiet: str
    """Time in which the engine has owed bytes and sent none; empty: it owes none."""


def profile_cards(document: StatusDocument, *, now: float) -> tuple[ProfileCard, ...]:
    """Return the profiles, those that run first."""
    return tuple(_card(row, document, now) for row in by_interest(document.profiles))


def _card(row: ProfileRow, document: StatusDocument, now: float) -> ProfileCard:
    state, mark = row.state, row.mark or ""
    is_retired = mark == "retired" and state == "stopped"
    return ProfileCard(
        name=row.name,
        description=row.description,
        state=state,
        glyph="⊘" if is_retired else STATE_GLYPHS.get(state, "?"),
        mark=mark,
        mark_text=mark_text(mark),
        engine=row.engine,
        port=port_text(row),
        since=since_text(row.uptime_s, now) if state == "serving" else "",
        lines=tuple(_lines(row, document, now)),
        warnings=tuple(_warnings(row, document, now)),
        committed=row.committed,
        runs=state not in SHORT,
        can_start=state not in _MARKS_UP and mark != "retired",
    )


def _lines(row: ProfileRow, document: StatusDocument, now: float) -> Iterable[str]:
    if row.state in SHORT:
        return
    if row.status_text not in {"", row.state}:
        yield row.status_text
    report = _report(row, document)
    if report is not None:
        yield figures_text(speed_of(report), now)
    if traffic := traffic_text(document, row.name):
        yield traffic


def _warnings(row: ProfileRow, document: StatusDocument, now: float) -> Iterable[str]:
    if row.note:
        yield row.note
    report = _report(row, document)
    if report is not None:
        speed = speed_of(report)
        yield from (loss_text(series, now) for series in speed.series if series.is_lost)
        if speed.trouble:
            yield speed.trouble


def _report(row: ProfileRow, document: StatusDocument) -> Json | None:
    if not document.speed or row.state != "serving":
        return None
    return document.speed.profiles.get(row.name)


def traffic_cards(document: StatusDocument) -> tuple[TrafficCard, ...]:
    """Return the profiles that had requests since the gateway's start, the busiest first."""
    rows = () if document.gateway is None else document.gateway.profiles
    cards = [_traffic(row) for row in rows if row.requests or row.queued]
    return tuple(sorted(cards, key=lambda card: (-card.in_flight - card.held, card.name)))


def _traffic(row: TrafficRow) -> TrafficCard:
    first = "" if row.ttft_ms is None else f"{row.ttft_ms.p50 / 1000:.2f} s"
    return TrafficCard(
        name=row.name,
        in_flight=row.in_flight,
        held=row.queued,
        requests=row.requests,
        errors=row.errors,
        tok_s="" if row.tok_s is None else f"{row.tok_s:.1f}",
        first_token=first,
        quiet="" if row.quiet_s is None else f"{row.quiet_s:.0f} s",
    )
