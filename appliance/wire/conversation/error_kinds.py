"""Kinds of errors in answers to requests, by what the client can do about them.

=================  =============================================  ==============================
a kind             its error                                      what the client can do
=================  =============================================  ==============================
`bad-request`      `BadRequestError`                              send another request
`unknown-profile`  `UnknownProfileError`                          name one that is applied
`not-found`        `NotFoundError`                                name something that exists
`denied`           `PermissionDeniedError`                        ask somebody who may
`busy`             `BusyError`                                    send the same one later
`precondition`     `PreconditionError`                            change the box first: the
                                                                  message says how
`unreachable`      `UnreachableError`                             start what does not answer
`settings`         none: sent in place of the greeting            correct the settings
`failed`           any other: a fault of the box or the server    read the log
=================  =============================================  ==============================
"""

from collections.abc import Mapping
from typing import Final, Literal

from appliance.model.errors import (
    ApplianceError,
    BadRequestError,
    BusyError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnknownProfileError,
    UnreachableError,
)
from appliance.wire.control import Exit

ErrorKind = Literal[
    "failed",
    "bad-request",
    "unknown-profile",
    "not-found",
    "busy",
    "denied",
    "precondition",
    "unreachable",
    "settings",
]

EXIT_STATUSES: Final[Mapping[ErrorKind, int]] = {
    "failed": Exit.FAILED,
    "bad-request": Exit.USAGE,
    "unknown-profile": Exit.NO_SUCH_PROFILE,
    "not-found": Exit.NO_SUCH_PROFILE,
    "busy": Exit.BUSY,
    "denied": Exit.PERMISSION,
    "precondition": Exit.FAILED,
    "unreachable": Exit.UNREACHABLE,
    "settings": Exit.CONFIG,
}
"""Exit status of the command after each kind of error. Commands of the first release know only the
status, servers of the first release send only the status."""
_KINDS: Final[Mapping[int, ErrorKind]] = {
    # The first kind of a status is the one that the first release had.
    status: kind
    for kind, status in reversed(list(EXIT_STATUSES.items()))
}


def error_kind(error: ApplianceError) -> ErrorKind:  # noqa: PLR0911 - one a kind
    """Return the kind of an error."""
    match error:
        case UnknownProfileError():
            return "unknown-profile"
        case NotFoundError():
            return "not-found"
        case BusyError():
            return "busy"
        case PermissionDeniedError():
            return "denied"
        case BadRequestError():
            return "bad-request"
        case PreconditionError():
            return "precondition"
        case UnreachableError():
            return "unreachable"
        case _:
            return "failed"


def kind_of_answer(word: str, status: int) -> ErrorKind:
    """Return the kind that an answer names; of a word of an earlier or a later release, that of its exit status."""
    known = next((kind for kind in EXIT_STATUSES if kind == word), None)
    return known or _KINDS.get(status, "failed")
