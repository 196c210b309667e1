"""Table of stored probes with their raw times, as CSV or a document a line."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.health_questions import talk
from appliance.cli.terminal import Terminal
from appliance.model.measurements import Probe, RawTimings, rate_of
from appliance.model.words import Series
from appliance.presentation.clock_times import utc_second
from appliance.wire.alert_requests import MOST_RECORDS
from appliance.wire.conversation import ErrorEvent, RequestRefusedError
from appliance.wire.health_socket import MeasurementsRequest, StoredProbeEvent

_PLAIN: Final = ("began_unix_s", "kind", "prompt", "outcome", "detail")
_RAW: Final = tuple(field.name for field in fields(RawTimings))
_RATES: Final = {Series.DECODE: "decode_steps_per_s", Series.PREFILL: "prefill_tok_s"}
"""Columns of the rates that the raw times give."""


def stored_probes(arguments: Arguments, name: str, since_unix_s: float) -> Sequence[Probe]:
    """Return every stored probe since then, oldest first; the agent answers page by page."""
    pages: list[Sequence[Probe]] = []
    until = None
    while not pages or len(pages[-1]) == MOST_RECORDS:
        request = MeasurementsRequest(name, since_unix_s, MOST_RECORDS, until)
        pages.append(_page(arguments, request))
        until = pages[-1][0].began_unix_s if pages[-1] else None
    return [probe for page in reversed(pages) for probe in page]


def _page(arguments: Arguments, request: MeasurementsRequest) -> Sequence[Probe]:
    found = []
    with talk(arguments, request) as conversation:
        for event in conversation.events():
            if isinstance(event, ErrorEvent):
                raise RequestRefusedError(event)
            if isinstance(event, StoredProbeEvent):
                found.append(event.read())
    return found


def write_probes(probes: Sequence[Probe], out: Terminal, *, as_json: bool) -> None:
    """Write the probes: documents with their evidence, or rows of raw times and rates."""
    if as_json:
        for probe in probes:
            out.document(asdict(probe), indent=None)
        return
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["time", *_PLAIN, *_RAW, *_RATES.values()])
    for probe in probes:
        raw = probe.raw
        times = [None if raw is None else getattr(raw, name) for name in _RAW]
        rates = [None if raw is None else rate_of(series, raw) for series in _RATES]
        plain = [getattr(probe, name) for name in _PLAIN]
        table.writerow([utc_second(probe.began_unix_s), *plain, *times, *rates])
