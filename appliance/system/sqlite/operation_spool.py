"""Spool of operations in a file in memory (tmpfs), which no full disk can refuse.

The running operation only has to survive the death of the supervisor, not a reboot, so it is kept
where no disk can refuse it. Finished operations wait here until the database takes them.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from appliance.model.json_reader import decode_json
from appliance.system.files.regular import read_small_file, replace_volatile
from appliance.system.sqlite.database import newer_error
from appliance.system.sqlite.operation_rows import SCHEMA_VERSION, brought_up

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 100
_MOST_BYTES: Final = 4 << 20
"""Largest file that is read: forty times the size of so many operations."""
_UNSTATED: Final = 1
"""Version of a file that does not state one."""
SpooledRow = dict[str, Any]
"""Columns of an operation, its id among them (operation_rows)."""


@dataclass(slots=True)
class OperationSpool:
    """Store of the open operation, and of those that the database does not have yet.

    Args:
        path: The file; None: nothing is kept beyond this process.
    """

    path: Path | None
    open: SpooledRow | None = None
    waiting: list[SpooledRow] = field(default_factory=list)
    last_id: int = 0
    """Highest number of an operation that was kept here."""
    known: bool = False
    """Whether anything was written in this boot: the spool then tells what is open, whatever a
    database says."""

    def load(self) -> None:
        """Read the file of an earlier process. A damaged file counts as empty.

        Raises:
            StoreError: a newer version wrote the file.
        """
        if self.path is None:
            return
        try:
            document = decode_json(read_small_file(self.path, _MOST_BYTES))
            version = int(document.get("version", _UNSTATED))
            if version <= SCHEMA_VERSION:
                self._take(document, version)
                return
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("%s is damaged: %s", self.path, error)
            return
        raise newer_error(self.path, version, known=SCHEMA_VERSION)

    def _take(self, document: dict[str, Any], version: int) -> None:
        """Take over the content of a file. Raises KeyError or TypeError for a damaged one."""
        rows = [*([document["open"]] if document["open"] else []), *document["waiting"]]
        if not all(isinstance(row["id"], int) for row in rows):
            raise TypeError("an operation without a number")
        if version != SCHEMA_VERSION:
            rows = [brought_up(row, version) for row in rows]
        self.last_id = max([int(document.get("last_id", 0)), *(row["id"] for row in rows)])
        self.open = rows.pop(0) if document["open"] else None
        self.waiting, self.known = rows, True

    def keep(self, row: SpooledRow | None, *, finished: Sequence[SpooledRow] = ()) -> None:
        """Replace the open operation, and add finished ones for the database to take."""
        self.open, self.known = row, True
        self.waiting = [*self.waiting, *finished][-_MOST_WAITING:]
        new = [*finished, *([row] if row else [])]
        self.last_id = max([self.last_id, *(r["id"] for r in new)])
        self._write()

    def taken(self) -> None:
        """Forget the finished operations, which the database has taken."""
        self.waiting = []
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        document = {
            "version": SCHEMA_VERSION,
            "open": self.open,
            "waiting": self.waiting,
            "last_id": self.last_id,
        }
        try:
            replace_volatile(self.path, self.path.with_suffix(".new"), json.dumps(document))
        except OSError as error:
            _log.warning("the running operation could not be written to %s: %s", self.path, error)
