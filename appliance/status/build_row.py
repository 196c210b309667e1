"""Build of a profile's engine, as the status document has it."""

from appliance.model.engine_build import EngineBuild
from appliance.model.profile import Applied
from appliance.model.status import BuildRow
from appliance.model.wording import printable
from appliance.switch.engine_findings import lacking_options


def build_row(applied: Applied, build: EngineBuild | None) -> BuildRow | None:
    """Return the row of a build; None: its engine was not asked since its program was replaced."""
    if build is None:
        return None
    return BuildRow(
        version=printable(build.version) or None,
        asked_unix_s=build.asked_unix_s,
        problem=printable(build.problem),
        lacks=list(lacking_options(applied, build)),
    )
