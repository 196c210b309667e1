"""Status document as Markdown, for people and agents that keep or pass on a document.

It is made of what was observed at the moment in its head, so a copy that is kept says how old it is.
"""

import time
from collections.abc import Iterable, Sequence

from appliance.model.status import AlertSection, ProfileRow, StatusDocument
from appliance.model.wording import joined
from appliance.presentation.alert_texts import (
    alert_severity,
    alert_text,
    delivery_line,
    silence_text,
    subject_name,
)
from appliance.presentation.box_texts import header, mark_text
from appliance.presentation.clock_times import utc_second
from appliance.status.speed_figures import DECODE, band_text, rate_text, speed_of
from appliance.wire.json_values import Json, text_in


def markdown_lines(document: StatusDocument, *, now: float) -> Iterable[str]:
    """Return the lines of the document: head, verdict, profiles, watches, alerts."""
    local = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    yield f"# {_plain(document.host)}: {document.verdict.state}"
    yield ""
    yield f"As observed at {utc_second(now)} ({local}) by `appliance status --markdown`; make it anew, as a copy"
    yield "grows old. Marks change only by `appliance mark`."
    yield ""
    yield f"- {_plain(header(document))}"
    yield f"- serves after a boot: {joined([f'`{n}`' for n in document.committed])}"
    yield from (f"- {_plain(sentence)}" for sentence in document.verdict.why)
    yield from _profiles(document)
    yield from _watches(document)
    yield from _alerts(document.alerts or None, now)


def _profiles(document: StatusDocument) -> Iterable[str]:
    reports = document.speed.profiles if document.speed else {}
    rows = [
        (
            f"`{row.name}`",
            row.state,
            "yes" if row.committed else "",
            row.engine,
            f"`{row.endpoint}`",
            _mark(row.mark or "unknown"),
            _speed(row, reports.get(row.name)),
            row.note or "",
        )
        for row in document.profiles
    ]
    heads = ("Profile", "State", "Committed", "Engine", "Endpoint", "Mark", "Speed", "Note")
    yield from _table("Profiles", heads, rows, nothing="No profile is applied.")


def _mark(mark: str) -> str:
    """Return a mark with what it means; a retired one says it itself."""
    meaning = mark_text(mark)
    return mark if meaning == mark else f"{mark} ({meaning})"


def _speed(row: ProfileRow, report: Json | None) -> str:
    """Return the measured rate of decoding beside its baseline; empty: not measured, or not serving."""
    decode = None if report is None else speed_of(report).of(DECODE)
    if decode is None or decode.rate is None or row.state != "serving":
        return ""
    baseline = (
        "" if decode.baseline is None else f" (baseline {band_text(decode.baseline, decode.band)})"
    )
    return f"{rate_text(decode.rate)} tok/s{baseline}"


def _watches(document: StatusDocument) -> Iterable[str]:
    rows = [(f"`{row.name}`", _mark(row.mark)) for row in document.watches]
    if rows:
        yield from _table("Watches", ("Watch", "Mark"), rows)


def _alerts(section: AlertSection | None, now: float) -> Iterable[str]:
    if section is None:
        yield from ("", "## Alerts", "", "Not known: the health agent does not answer.")
        return
    rows = [
        (
            alert_severity(alert),
            f"{subject_name(text_in(alert, 'subject'))} {alert_text(alert, now)}",
            text_in(alert, "likely"),
            f"`{command}`" if (command := text_in(alert, "command")) else "",
        )
        for alert in section.alerts
    ]
    heads = ("Severity", "Alert", "Likely", "Do")
    yield from _table("Alerts", heads, rows, nothing="None.")
    yield ""
    yield from (f"- {_plain(silence_text(silence, now))}" for silence in section.silences)
    yield f"- {_plain(delivery_line(section.delivery))}"


def _table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, nothing: str = ""
) -> Iterable[str]:
    yield from ("", f"## {title}", "")
    if not rows:
        yield nothing
        return
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for row in rows:
        yield f"| {' | '.join(_plain(cell) for cell in row)} |"


def _plain(text: str) -> str:
    """Return a text on one line that ends no cell and begins no link."""
    return " ".join(text.replace("|", "\\|").replace("[", "\\[").replace("<", "\\<").split())
