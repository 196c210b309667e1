"""How a verb ends early."""

from typing import Final

from appliance.domain.errors import ApplianceError
from appliance.protocol.control import Exit

NOT_RUNNING: Final = "supervisor not running: sudo systemctl start appliance-supervisor"
NOT_A_MEMBER: Final = (
    "permission denied: sudo usermod -aG appliance-operators $USER, then log in again"
)


class CliError(ApplianceError):
    """A sentence for stderr and the exit status that goes with it."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = int(status)


class UnreachableError(CliError):
    """The supervisor does not answer; systemd and the files may still tell something."""

    def __init__(self, message: str = NOT_RUNNING) -> None:
        super().__init__(message, Exit.UNREACHABLE)


class NotAMemberError(CliError):
    """The control socket is there, but not for this user."""

    def __init__(self) -> None:
        super().__init__(NOT_A_MEMBER, Exit.PERMISSION)


class TimedOutError(CliError):
    """What was asked for goes on; only the waiting is over."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.TIMEOUT)


def need_root(what: str) -> CliError:
    """The failure of a verb that only root may run; `what` is the command to repeat."""
    return CliError(f"permission denied: sudo appliance {what}", Exit.PERMISSION)
