"""Profiles and their traffic, as the page lists them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from appliance.model.status import ProfileRow, StatusDocument, TrafficRow
from appliance.presentation.box_texts import (
    SHORT,
    STATE_GLYPHS,
    by_interest,
    mark_text,
    port_text,
    since_text,
    traffic_text,
)
from appliance.presentation.speed_texts import figures_text, loss_text
from appliance.status.speed_row import speed_row
from appliance.wire.json_values import Json

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
        yield figures_text(speed_row(report), now)
    if traffic := traffic_text(document, row.name):
        yield traffic


def _warnings(row: ProfileRow, document: StatusDocument, now: float) -> Iterable[str]:
    if row.note:
        yield row.note
    report = _report(row, document)
    if report is not None:
        speed = speed_row(report)
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
