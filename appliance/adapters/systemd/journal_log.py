"""Formatter of log records for the journal: a priority prefix on each line."""

import logging
import sys
from typing import Final

_PRIORITY: Final = (
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
    (logging.NOTSET, 7),
)
"""syslog(3) levels by the lowest logging level they stand for."""


class JournalFormatter(logging.Formatter):
    """``<6>text``; continuation lines carry the prefix too, else they lose their priority."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record, with a prefix on each line."""
        priority = next(p for level, p in _PRIORITY if record.levelno >= level)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines())


def log_to_journal(level: str) -> None:
    """Log from `level` on to standard error, which systemd connects to the journal."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JournalFormatter("%(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
