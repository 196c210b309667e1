"""Profiles that ``appliance switch -`` means, by the record of operations.

Switches alternate like ``cd -``: the targets of the newest switch that was done are where the box is, and the
newest other set before it, which that switch stopped or an earlier one served, is where the box was.
"""

from collections.abc import Iterator, Sequence

from appliance.cli.failures import CliError
from appliance.wire.client import ask
from appliance.wire.control import Exit
from appliance.wire.control_events import MOST_OPERATIONS, OperationsRequest
from appliance.wire.control_requests import CONTROL
from appliance.wire.json_values import Json, objects_in, text_in, texts_in


def previous_profiles(words: Sequence[str], control_socket: str) -> list[str]:
    """Return the profiles that were switched from last, which ``-`` stands for among `words`.

    Raises:
        CliError: no such switch is on record, or there are names beside the ``-``.
        UnreachableError: the supervisor does not answer.
    """
    if len(words) > 1:
        text = '"-" stands for all that were switched from: appliance switch --help'
        raise CliError(text, Exit.USAGE)
    details = ask(CONTROL, control_socket, OperationsRequest(MOST_OPERATIONS)).details
    names = previous_set(objects_in(details, "operations"))
    if not names:
        raise CliError(
            "no switch from another profile is on record: appliance operations",
            Exit.NO_SUCH_PROFILE,
        )
    return list(names)


def previous_set(rows: Sequence[Json]) -> Sequence[str]:
    """Return the profiles in the rows of operations, newest first; empty: there are none."""
    places = _places(rows)
    here = next(places, ())
    return next((place for place in places if {*place} != {*here}), ())


def _places(rows: Sequence[Json]) -> Iterator[Sequence[str]]:
    """Yield the sets to which the box went, newest first, with that which each switch stopped."""
    for row in rows:
        target = texts_in(row, "target")
        if text_in(row, "kind") != "switch" or text_in(row, "outcome") != "done" or not target:
            continue
        yield target
        if stopped := [name for name in texts_in(row, "profiles") if name not in target]:
            yield stopped
