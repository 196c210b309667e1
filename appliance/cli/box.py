"""The box for a verb: its status from the supervisor, else from systemd and the files; and its applied profiles."""

from __future__ import annotations

from appliance.cli.arguments import Arguments
from appliance.cli.paths import Places, find_places
from appliance.model.errors import PermissionDeniedError, UnknownProfileError, UnreachableError
from appliance.model.wording import no_such_profile
from appliance.wire.client import ask
from appliance.wire.control_events import status_in
from appliance.wire.control_requests import CONTROL, StatusRequest
from appliance.wire.conversation import RequestRefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from appliance.model.profile import Applied, Catalogue
    from appliance.model.status import ProfileRow, StatusDocument


def places_of(arguments: Arguments) -> Places:
    """Return the places of this box, with the control socket of the command line."""
    return find_places(socket=arguments.socket)


def read_status(places: Places) -> StatusDocument:
    """Return the status document of the supervisor, else of systemd and the files.

    Raises:
        UnitError: neither answers.
        StoreError: the supervisor does not answer and the manifest is damaged.
    """
    try:
        details = ask(CONTROL, places.control_socket, StatusRequest()).details
    except (UnreachableError, PermissionDeniedError, RequestRefusedError) as reason:
        if isinstance(reason, RequestRefusedError) and reason.kind != "settings":
            raise
        # Importing these would double the time of a status that the supervisor answers.
        from appliance.cli.offline_status import status_without  # noqa: PLC0415

        return status_without(places, reason)
    return status_in(details)


def row_of(document: StatusDocument, name: str) -> ProfileRow:
    """Return the row of profile `name`.

    Raises:
        UnknownProfileError: there is no such profile.
    """
    rows = {row.name: row for row in document.profiles}
    if name not in rows:
        raise UnknownProfileError(no_such_profile(name, rows))
    return rows[name]


def catalogue_of(places: Places) -> Catalogue:
    """Return the applied profiles; none while nothing was applied.

    Raises:
        StoreError: the manifest is damaged.
    """
    # A status by the supervisor does without these.
    from pathlib import Path  # noqa: PLC0415

    from appliance.system.applied.manifest import read_manifest  # noqa: PLC0415

    return read_manifest(Path(places.applied_dir))


def applied_of(places: Places, name: str) -> Applied:
    """Return profile `name` as it is applied.

    Raises:
        UnknownProfileError: there is no such profile.
        StoreError: the manifest is damaged.
    """
    catalogue = catalogue_of(places)
    if name not in catalogue:
        raise UnknownProfileError(no_such_profile(name, catalogue))
    return catalogue[name]
