"""Generate the tables of verbs and events in docs/reference: ``python -m appliance.cli.protocol_reference``.

The rest of the pages is written by hand. A test fails while a table is not what this would write.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from appliance.model.record import Record
from appliance.wire.control_requests import CONTROL
from appliance.wire.conversation import SocketTable
from appliance.wire.health_socket import HEALTH
from appliance.wire.helpers import AUDIT, CHECK, NOTIFY
from appliance.wire.status_socket import STATUS
from appliance.wire.view_socket import VIEW

_REFERENCE: Final = Path(__file__).parents[2] / "docs" / "reference"
_END: Final = "<!-- End of what is generated. -->\n"
_VERBS: Final = "| Verb | Request | Arguments | Answer |\n| --- | --- | --- | --- |\n"
_EVENTS: Final = "| Event | Keys | What it tells |\n| --- | --- | --- |\n"
_ANSWER: Final = "Answer: "


@dataclass(frozen=True, slots=True)
class GeneratedTable:
    """Place of a socket's table in a page."""

    file: str
    table: SocketTable[Any, Any]
    has_events: bool

    @property
    def begin(self) -> str:
        """Return the line before the table."""
        return (
            f"<!-- Table of the {self.table.name}, written by python -m appliance.cli.protocol_reference from the"
            " docstrings in appliance/wire. -->\n"
        )


TABLES: Final = (
    GeneratedTable("control-protocol.md", CONTROL, has_events=False),
    GeneratedTable("agent-sockets.md", STATUS, has_events=True),
    GeneratedTable("agent-sockets.md", HEALTH, has_events=True),
    *(
        GeneratedTable("agent-sockets.md", table, has_events=False)
        for table in (VIEW, AUDIT, CHECK, NOTIFY)
    ),
)
PAGES: Final = tuple(dict.fromkeys(_REFERENCE / generated.file for generated in TABLES))


def page(name: str, text: str) -> str:
    """Return the text of a page with its tables as they should be."""
    for generated in TABLES:
        if generated.file == name:
            before, begin, rest = text.partition(generated.begin)
            _, end, after = rest.partition(_END)
            if not begin or not end:
                raise ValueError(f"{name} has no place for the table")
            text = f"{before}{begin}\n{_table(generated)}\n{end}{after}"
    return text


def _table(generated: GeneratedTable) -> str:
    verbs = [_cells(verb, action, form) for verb, action, form in generated.table.requests]
    if not generated.has_events:
        return _rows(_VERBS, verbs)
    events = [_event_cells(name, form) for name, form in generated.table.events.items()]
    return f"{_rows(_VERBS, verbs)}\n{_rows(_EVENTS, events)}"


def _rows(head: str, rows: Sequence[Sequence[str]]) -> str:
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows).replace("|  |", "| |")


def _event_cells(name: str, form: type[Record]) -> tuple[str, str, str]:
    text = inspect.cleandoc(form.__doc__ or "").removeprefix(f"Event `{name}`")
    return f"`{name}`", "; ".join(_fields(form)), _phrase(text.lstrip(",:; "))


def _cells(verb: str, action: str, form: type[Record]) -> tuple[str, ...]:
    request, _, answer = inspect.cleandoc(form.__doc__ or "").partition(_ANSWER)
    arguments = [f"`action`: `{action}`"] if action else []
    what = request.removeprefix("Request to ").removeprefix("Request for ")
    return f"`{verb}`", _phrase(what), "; ".join([*arguments, *_fields(form)]), _phrase(answer)


def _fields(form: type[Record]) -> Iterator[str]:
    """Yield each field with what its docstring says."""
    documented = dict(_docstrings(form))
    for field in msgspec.structs.fields(form):
        text = documented.get(field.name, "")
        notes = ["default true"] if field.default is True else []
        notes += [_phrase(text.replace("None:", "null:"))] if text else []
        yield f"`{field.name}`" + (f" ({': '.join(notes)})" if notes else "")


def _phrase(text: str) -> str:
    """Return a sentence or two as the cell of a table."""
    line = " ".join(text.split()).rstrip(".").replace("|", "\\|").replace(". ", "; ")
    return line[:1].lower() + line[1:]


def _docstrings(form: type[Record]) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of the fields, which Python itself does not keep."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(form))).body
    for field, text in pairwise(tree.body if isinstance(tree, ast.ClassDef) else ()):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(docstring))),
            ):
                yield name, docstring
            case _:
                pass


def main() -> int:
    """Write the tables into the pages of the checkout that this module is in."""
    for path in PAGES:
        path.write_text(page(path.name, path.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
