"""Handler of log records for the journal, with their fields.

Entries go to the journal's own socket, because a line on standard error has no fields. Nothing waits:
while the journal reads too slowly entries are dropped and counted, and where it cannot be reached the
lines go to standard error.
"""

import logging
import sys
from collections.abc import Iterator
from typing import Final

from appliance.model.journal_events import JOURNAL_EXTRA
from appliance.wire.journal_socket import JournalSocket, encode_entry, entry_head

_PRIORITY: Final = (
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
    (logging.NOTSET, 7),
)
"""Levels of syslog(3) by the lowest logging level that each stands for."""
_SETTLE_S: Final = 0.5
"""Longest wait at the end of a process: journald needs some ms for an entry, 0.5 s under load."""


class JournalHandler(logging.Handler):
    """Handler that sends each record as one entry, with its traceback in the message."""

    def __init__(self, journal: JournalSocket, fallback: logging.Handler, identifier: str) -> None:
        """Create the handler.

        Args:
            journal: Socket of the journal, which the handler closes at its end.
            fallback: Takes records while the journal cannot be reached.
            identifier: Identifier of the entries, as ``SyslogIdentifier=`` of the unit.
        """
        super().__init__()
        # Without one, logging.basicConfig gives a handler its own, with level and logger in the text.
        self.setFormatter(logging.Formatter("%(message)s"))
        self._journal = journal
        self._fallback = fallback
        self._identifier = identifier
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        try:
            entry = encode_entry(self._fields(record))
        except Exception:  # noqa: BLE001 - as in every handler of logging: never the caller's error
            self.handleError(record)
            return
        if self._journal.send(entry):
            self._report_dropped()
        elif self._journal.is_usable:
            self._dropped += 1
        else:
            self._fallback.handle(record)

    def close(self) -> None:
        """Wait shortly until the journal has read everything, and disconnect."""
        self._journal.settle(_SETTLE_S)
        self._journal.close()
        self._fallback.close()
        super().close()

    def _report_dropped(self) -> None:
        if not self._dropped:
            return
        text = f"{self._dropped} log entries were dropped: the journal read too slowly"
        if self._journal.send(encode_entry(self._head(text, logging.WARNING))):
            self._dropped = 0

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, str]]:
        yield from self._head(self.format(record), record.levelno)
        yield from getattr(record, JOURNAL_EXTRA, ())
        yield "LOGGER", record.name
        yield "CODE_FUNC", record.funcName or ""
        yield "CODE_LINE", str(record.lineno)

    def _head(self, text: str, level: int) -> list[tuple[str, str]]:
        return entry_head(text, priority=priority_of(level), identifier=self._identifier)


def priority_of(level: int) -> int:
    """Return the priority of syslog(3) for a level of logging."""
    return next(priority for least, priority in _PRIORITY if level >= least)


def program_identifier() -> str:
    """Return the identifier of this process by the module that it runs (``python -m``)."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return identifier_of("appliance" if spec is None else spec.name)


def identifier_of(module: str) -> str:
    """Return the identifier of a daemon by its module, as its unit has it in ``SyslogIdentifier=``."""
    return module.removesuffix(".__main__").replace(".", "-")
