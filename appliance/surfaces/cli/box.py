"""What a verb can learn about the box: from the supervisor, else from systemd and the files."""

from argparse import Namespace
from typing import cast

from appliance.domain.names import SUPERVISOR_UNIT, is_profile_name
from appliance.domain.profile import Applied, Catalogue
from appliance.domain.protocol import Exit, Verb
from appliance.planning.status import ProfileRow, StatusDocument
from appliance.planning.wording import no_such_profile
from appliance.surfaces.cli.client import ask
from appliance.surfaces.cli.failure import CliError, NotAMemberError, UnreachableError
from appliance.surfaces.cli.places import Places, find_places


def places_of(arguments: Namespace) -> Places:
    """The places of this box, with the control socket of the command line."""
    return find_places(socket=arguments.socket)


def read_status(places: Places) -> StatusDocument:
    """The status document: the supervisor's, else as far as systemd and the files tell it.

    Raises:
        UnitError: neither answers.
        StoreError: the supervisor does not answer and the manifest is damaged.
    """
    try:
        return cast("StatusDocument", ask(places.control_socket, Verb.STATUS)["status"])
    except (UnreachableError, NotAMemberError) as reason:
        return _read_offline(places, reason)


def _read_offline(places: Places, reason: CliError) -> StatusDocument:
    from appliance.surfaces.cli.offline import status_from_systemd  # noqa: PLC0415 - slow path

    document = status_from_systemd(places, catalogue_of(places))
    if document["supervisor"]["state"] == "up":
        hint = f"{reason} ({SUPERVISOR_UNIT} runs; this is what systemd alone tells)"
        document["verdict"]["why"].insert(0, hint)
    return document


def catalogue_of(places: Places) -> Catalogue:
    """The applied profiles; none while nothing was applied.

    Raises:
        StoreError: the manifest is damaged.
    """
    from appliance.adapters.manifest import ManifestProfiles  # noqa: PLC0415 - slow path

    return ManifestProfiles(places.applied_dir).load()


def row_of(document: StatusDocument, name: str) -> ProfileRow:
    """The row of profile `name`.

    Raises:
        CliError: there is no such profile.
    """
    rows = {row["name"]: row for row in document["profiles"]}
    if name not in rows:
        raise CliError(no_such_profile(name, rows), Exit.NO_SUCH_PROFILE)
    return rows[name]


def applied_of(places: Places, name: str) -> Applied:
    """Profile `name` as it is applied.

    Raises:
        CliError: there is no such profile.
    """
    catalogue = catalogue_of(places)
    if not is_profile_name(name) or name not in catalogue:
        raise CliError(no_such_profile(name, catalogue), Exit.NO_SUCH_PROFILE)
    return catalogue[name]
