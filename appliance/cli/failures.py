"""Errors of the command line, and the exit status after each error."""

from appliance.model.errors import (
    ApplianceError,
    PermissionDeniedError,
    ProfileError,
    SettingsError,
    UnitError,
    UnknownProfileError,
    UnreachableError,
)
from appliance.wire.control import Exit
from appliance.wire.conversation import EXIT_STATUSES, RequestRefusedError


class CliError(ApplianceError):
    """Error with a sentence for stderr and an exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = int(status)


class TimedOutError(CliError):
    """Error after the time of `--timeout`; the operation continues."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.TIMEOUT)


def need_root(what: str) -> CliError:
    """Return the error of a verb that only root may run; `what` is the command to repeat."""
    return CliError(f"permission denied: sudo appliance {what}", Exit.PERMISSION)


def status_of(error: ApplianceError) -> int:  # noqa: PLR0911 - one a kind of error
    """Return the exit status of a command that ends with `error`."""
    match error:
        case CliError():
            return error.status
        case RequestRefusedError():
            return EXIT_STATUSES[error.kind]
        case UnknownProfileError():
            return int(Exit.NO_SUCH_PROFILE)
        case PermissionDeniedError():
            return int(Exit.PERMISSION)
        case ProfileError() | SettingsError():
            return int(Exit.CONFIG)
        case UnitError() | UnreachableError():
            return int(Exit.UNREACHABLE)
        case _:
            return int(Exit.FAILED)
