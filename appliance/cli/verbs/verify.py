"""Verb `appliance verify`: what engines report about themselves, against what their profiles declare."""

from collections.abc import Iterator, Sequence
from typing import Final, TypedDict

from appliance.cli.arguments import Arguments
from appliance.cli.box import applied_of, places_of
from appliance.cli.table import Column, fitted
from appliance.cli.terminal import Streams, Style, Terminal
from appliance.model.errors import UnreachableError
from appliance.model.status import VerificationRow, VerifiedFactRow
from appliance.status.verification import title
from appliance.wire.client import ask
from appliance.wire.control_requests import CONTROL, VerifyRequest
from appliance.wire.json_values import object_in, objects_in, text_in
from appliance.wire.typed_json import from_json

_COLUMNS: Final = (
    Column(head="FACT"),
    Column(head="DECLARED", least=12),
    Column(head="REPORTED", least=12),
    Column(head="BY", least=12, spare=1),
)


class VerifiedProfile(TypedDict):
    """One profile that serves, compared with what its engine reports."""

    name: str
    verification: VerificationRow


class VerifyDocument(TypedDict):
    """Engines that were compared with their profiles."""

    profiles: list[VerifiedProfile]
    """None where nothing serves."""


def run(arguments: Arguments, streams: Streams) -> int:
    """Print how engines compare; returns 0 when none breaks what its profile declares."""
    places = places_of(arguments)
    answers = []
    for name in dict.fromkeys(arguments.names) or (None,):
        try:
            answers.append(ask(CONTROL, places.control_socket, VerifyRequest(name)))
        except UnreachableError:
            if name is not None:
                applied_of(places, name)  # a wrong name has an error of its own
            raise
    status = max(answer.exit for answer in answers)
    if arguments.json:
        told = [row for answer in answers for row in objects_in(answer.details, "profiles")]
        streams.out.document({"profiles": told})
        return status
    for answer in answers:
        for profile in objects_in(answer.details, "profiles"):
            streams.out.line(text_in(profile, "name"))
            row = from_json(VerificationRow, object_in(profile, "verification"))
            for line in verification_lines(row, streams.out):
                streams.out.line(line)
        (streams.err if answer.exit else streams.out).line(answer.message)
    return status


def verification_lines(row: VerificationRow, terminal: Terminal) -> Iterator[str]:
    """Yield a table of the facts, those that differ first, and what could not be understood."""
    cells: Sequence[Sequence[str]] = [_cells(fact, terminal) for fact in row.facts]
    if cells:
        yield from fitted(_COLUMNS, cells, terminal, indent=2).lines()
    else:
        yield "  nothing to compare"
    yield from (f"  {fault}" for fault in row.faults)


def _cells(fact: VerifiedFactRow, terminal: Terminal) -> Sequence[str]:
    reported = fact.reported or "not reported"
    if fact.state == "differs":
        style = Style.RED if fact.fails else Style.YELLOW
        reported = terminal.paint(f"{reported}, differs", style)
    return title(fact), f"{fact.declared} ({fact.key})", reported, fact.source or ""
