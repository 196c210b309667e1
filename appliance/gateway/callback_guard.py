"""Guard of the event loop's callbacks: a fault of the gateway ends one request, in words.

An exception that leaves a callback reaches the event loop, which closes the transport without a
byte for the client and logs a traceback, or ends the timer or the queue that others wait for.
Guarded, it ends the request as `GATEWAY_FAULT` says, or breaks a response off that has begun, and
leaves one line in the log. The line has the exception's type and place, but not its message, which
may quote a body.

A callback of the hottest path has the guard inside, because a ``try`` costs nothing while nothing is
raised; the others are decorated.
"""

import logging
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import PurePath
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

_log = logging.getLogger(__name__)

_FRAMES: Final = 4
"""Innermost frames that the log line names."""


class CallbackOwner(Protocol):
    """Owner of callbacks, and of the request or connection that a fault in one ends."""

    def end_after_fault(self) -> None:
        """Refuse the request with `GATEWAY_FAULT`, or break off what has begun."""
        ...

    def abort(self) -> None:
        """Close the connection now."""
        ...


_Owner = TypeVar("_Owner", bound=CallbackOwner)
_Arguments = ParamSpec("_Arguments")
_Callback = Callable[Concatenate[_Owner, _Arguments], None]


def guarded(callback: _Callback[_Owner, _Arguments]) -> _Callback[_Owner, _Arguments]:
    """Decorate a callback so that no exception leaves it."""

    @wraps(callback)
    def call(owner: _Owner, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        try:
            callback(owner, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the guard
            end_faulty(error, owner.end_after_fault, owner.abort)

    return call


def end_faulty(error: Exception, *ends: Callable[[], None]) -> None:
    """Log an exception that nobody expected, and end what it was raised for.

    Args:
        error: Exception.
        ends: Ways to end it; the first that does not fail itself is taken.
    """
    log_fault(error)
    for end in ends:
        try:
            end()
        except Exception as second:  # noqa: BLE001 - the guard
            log_fault(second)
        else:
            return


def log_fault(error: Exception) -> None:
    """Log an exception that nobody expected in one line: where it was raised, and nothing it says."""
    frames = [
        f"{PurePath(frame.f_code.co_filename).name}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    _log.error(
        "a fault of the gateway has ended a request: %s at %s; report it with this line",
        type(error).__name__,
        ", ".join(frames[: -_FRAMES - 1 : -1]),
    )
