"""Errors, branched by what the caller can do about them.

Messages state the fact, then the next command.
"""


class ApplianceError(Exception):
    """Error that the appliance reports to a person; `str()` is one or more complete lines."""


class ProfileError(ApplianceError):
    """Error in a profile: fix the file."""


class SettingsError(ApplianceError):
    """Error in the settings: fix appliance.toml or the environment."""


class BackendError(ApplianceError):
    """Wrong or missing answer of a model's engine: retry, or read its log."""


class UnitError(ApplianceError):
    """Refusal by systemd, or systemd could not be reached."""


class StoreError(ApplianceError):
    """State directory that cannot be read or written."""


class PermissionDeniedError(ApplianceError):
    """Refusal because the caller may not do this."""


class UnreachableError(ApplianceError):
    """Missing answer of one of our processes; systemd and the files may still give part of the status."""


class BadRequestError(ApplianceError):
    """Request on one of our sockets that this version cannot read."""


class BusyError(ApplianceError):
    """Refusal because another operation runs or an operator holds the box: ask again later."""


class PreconditionError(ApplianceError):
    """Refusal because the box is not in the state that the request needs: change that first."""


class UnknownProfileError(ApplianceError):
    """Name of a profile that is not applied."""


class NotFoundError(ApplianceError):
    """Name or number of something else that does not exist: an operation, alert, window, target, key or token."""


class LaneBusyError(ApplianceError):
    """Refusal of a probe or a lease by the gateway, which sent nothing to an engine: try later."""


class LaneAwayError(LaneBusyError):
    """Missing answer of the gateway on its lane: it is not there, or does not answer in time."""
