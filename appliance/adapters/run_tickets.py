"""File of the ticket for an operator's command (`appliance.protocol.run_ticket` has its format)."""

from pathlib import Path
from typing import Final

from appliance.adapters.files.regular import replace_volatile
from appliance.domain.claims import Claim, gpu_indexes
from appliance.domain.errors import StoreError
from appliance.domain.operations import RunCaller
from appliance.protocol import run_ticket

TICKET: Final = Path(run_ticket.FILE)


class FileRunTickets:
    """The port `RunTickets` on a file in the supervisor's runtime directory."""

    def __init__(self, path: Path = TICKET) -> None:
        self._path = path

    def issue(self, operation: int, caller: RunCaller, claim: Claim) -> None:
        """Admit the caller of one operation, and nobody else. Raises `StoreError`."""
        text = run_ticket.encoded(
            operation=operation, uid=caller.uid, gpus=gpu_indexes(claim), token=caller.token
        )
        try:
            replace_volatile(self._path, self._path.with_suffix(".new"), text)
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error.strerror}") from error

    def revoke(self) -> None:
        """Admit nobody any more. Never raises: a ticket is good for one command."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            return
