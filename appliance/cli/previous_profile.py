"""Profile that ``appliance switch -`` means, by the record of operations.

Switches alternate like ``cd -``: the target of the newest switch that was done is where the box is, and the
newest other target before it is where the box was.
"""

from collections.abc import Iterator, Sequence

from appliance.cli.failures import CliError
from appliance.protocol.control import Exit
from appliance.protocol.control_requests import CONTROL
from appliance.protocol.conversation.client import ask
from appliance.protocol.json_values import Json, objects_in, text_in, texts_in
from appliance.protocol.operation_requests import MOST_OPERATIONS, OperationsRequest


def previous_profile(control_socket: str) -> str:
    """Return the profile that was switched from last.

    Raises:
        CliError: no such switch is on record.
        UnreachableError: the supervisor does not answer.
    """
    details = ask(CONTROL, control_socket, OperationsRequest(MOST_OPERATIONS)).details
    name = previous_target(objects_in(details, "operations"))
    if name is None:
        raise CliError(
            "no switch from another profile is on record: appliance operations",
            Exit.NO_SUCH_PROFILE,
        )
    return name


def previous_target(rows: Sequence[Json]) -> str | None:
    """Return the profile in the rows of operations, newest first; None: there is none."""
    places = _places(rows)
    here = next(places, None)
    return next((place for place in places if place != here), None)


def _places(rows: Sequence[Json]) -> Iterator[str]:
    """Yield the profiles to which the box went, newest first, with the one that each switch stopped."""
    for row in rows:
        target = texts_in(row, "target")
        if text_in(row, "kind") != "switch" or text_in(row, "outcome") != "done" or not target:
            continue
        yield target[0]
        stopped = [name for name in texts_in(row, "profiles") if name not in target]
        if len(stopped) == 1:
            yield stopped[0]
