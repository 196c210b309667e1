"""What can be wrong with a line on the control socket."""

from appliance.domain.errors import ApplianceError


class BadRequestError(ApplianceError):
    """The client's line makes no sense to this version."""
