"""Catalogue of applied profiles, for verbs that read one of them themselves.

Apart from `appliance.cli.box`, because a status by the supervisor does without the manifest's imports.
"""

from pathlib import Path

from appliance.cli.paths import Places
from appliance.model.errors import UnknownProfileError
from appliance.model.profile import Applied, Catalogue
from appliance.model.wording import no_such_profile
from appliance.system.applied.manifest import read_manifest


def catalogue_of(places: Places) -> Catalogue:
    """Return the applied profiles; none while nothing was applied.

    Raises:
        StoreError: the manifest is damaged.
    """
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
