"""Errors, branched by what the caller can do about them.

Messages state the fact, then the next command.
"""


class ApplianceError(Exception):
    """Anything the appliance reports to a person. `str()` is one or more complete lines."""


class ProfileError(ApplianceError):
    """A profile is wrong: fix the file."""


class SettingsError(ApplianceError):
    """The settings are wrong: fix appliance.toml or the environment."""


class BackendError(ApplianceError):
    """A model did not answer as it should: retry, or read its log."""


class UnitError(ApplianceError):
    """systemd refused or could not be reached."""


class StoreError(ApplianceError):
    """The state directory cannot be read or written."""


class PermissionDeniedError(ApplianceError):
    """The caller may not do this."""


class UnreachableError(ApplianceError):
    """The supervisor does not answer; systemd and the files may still tell something."""


class BadRequestError(ApplianceError):
    """A request on one of our sockets makes no sense to this version."""


class BusyError(ApplianceError):
    """Another operation runs, or people hold the box: ask again later."""


class UnknownProfileError(ApplianceError):
    """No such profile is applied."""
