"""Profile names for a shell's completion, from the manifest alone."""

from collections.abc import Iterable

from appliance.cli.catalogue import catalogue_of
from appliance.cli.paths import find_places
from appliance.domain.errors import ApplianceError


def profile_names(prefix: str, **_: object) -> Iterable[str]:
    """Return the applied profiles that begin with `prefix`; none when the manifest cannot be read."""
    try:
        catalogue = catalogue_of(find_places())
    except ApplianceError:
        return ()
    return tuple(name for name in catalogue if name.startswith(prefix))
