"""Client of audit.sock, for the health agent: listening sockets of backends and of other processes.

Without an auditor nothing is known about them, which is neither good nor bad.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from appliance.model.errors import ApplianceError
from appliance.wire.async_client import details_of
from appliance.wire.helpers import AUDIT, Listener, ListenersRequest, decode_listeners

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = 3.0
"""Longer than an audit may take; the first one waits for the auditor's start, too."""


class AuditClient:
    """Client of the auditor.

    Args:
        path: Of audit.sock.
        patience_s: For an answer.
    """

    def __init__(self, path: Path, *, patience_s: float = _PATIENCE_S) -> None:
        self._path = path
        self._patience_s = patience_s
        self._trouble = ""

    async def listeners(self, pids: Sequence[int]) -> tuple[Listener, ...] | None:
        """Return the listening sockets of backends and of processes; None: the auditor does not answer.

        Where the auditor found more than it tells, those that it told.
        """
        request = ListenersRequest(tuple(pids))
        try:
            details = await details_of(AUDIT, self._path, request, within_s=self._patience_s)
            found, truncated = decode_listeners(details)
        except (ApplianceError, ValueError) as error:
            self._tell(f"listening sockets are not known: {error}")
            return None
        self._tell("the auditor tells a part of the listening sockets alone" if truncated else "")
        return found

    def _tell(self, trouble: str) -> None:
        """Log a trouble when it begins, not each time."""
        if trouble and trouble != self._trouble:
            _log.warning("%s", trouble)
        self._trouble = trouble
