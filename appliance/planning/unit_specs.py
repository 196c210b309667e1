"""Profiles become what their units are made from."""

from dataclasses import replace

from appliance.domain.spec import Profile
from appliance.planning.compile import Source, compile_applied, unseen
from appliance.planning.engines import launch
from appliance.planning.engines.rendering import LaunchContext
from appliance.planning.estimates.headers import LookAtModel
from appliance.planning.unit_commands import UnitSpec


def spec_of(
    profile: Profile,
    source: Source,
    context: LaunchContext,
    *,
    user: str | None = None,
    look: LookAtModel = unseen,
) -> UnitSpec:
    """The unit of `profile`.

    Args:
        profile: A valid one.
        source: Its file.
        context: The box.
        user: Who runs backends whose profile names nobody; None: each has a user of its own.
        look: Reads the headers of its model.
    """
    started = launch(profile, context)
    return UnitSpec(
        applied=replace(
            compile_applied(profile, source, context, look), user=profile.user or user or ""
        ),
        argv=started.argv,
        environment=started.environment,
        temporary=started.temporary,
        gpus=profile.gpus,
        order=profile.order,
        patch=profile.patch,
        overrides=profile.unit,
    )
