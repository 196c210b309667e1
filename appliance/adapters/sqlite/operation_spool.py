"""What must not be lost while the state's disk is full: in a file in memory (tmpfs).

The running operation only has to survive the death of the supervisor, not a reboot, so it is kept
where no disk can refuse it. Finished operations wait here until the database takes them.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from appliance.adapters.files.regular import read_small_file, replace_volatile

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 100
_MOST_BYTES: Final = 4 << 20
"""Forty times what so many operations take."""
Row = dict[str, Any]
"""Columns of an operation, its id among them (operation_rows)."""


@dataclass(slots=True)
class Journal:
    """The open operation and the ones that the database does not have yet.

    Args:
        path: The file; None: nothing is kept beyond this process.
    """

    path: Path | None
    open: Row | None = None
    waiting: list[Row] = field(default_factory=list)
    last_id: int = 0
    """The highest number of an operation that it has kept."""
    known: bool = False
    """Whether anything was written in this boot: then this is what is open, whatever a database says."""

    def load(self) -> None:
        """Read what an earlier process left. A damaged file is as good as none."""
        if self.path is None:
            return
        try:
            document = json.loads(read_small_file(self.path, _MOST_BYTES))
            rows = [document["open"] or {"id": 0}, *document["waiting"]]
            if not all(isinstance(row["id"], int) for row in rows):
                raise TypeError("an operation without a number")  # noqa: TRY301 - damaged too
            self.last_id = max(int(document.get("last_id", 0)), *(row["id"] for row in rows))
            self.open, self.waiting, self.known = document["open"], document["waiting"], True
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            _log.warning("%s is damaged: %s", self.path, error)

    def keep(self, row: Row | None, *, finished: Sequence[Row] = ()) -> None:
        """Replace the open operation, and add finished ones for the database to take."""
        self.open, self.known = row, True
        self.waiting = [*self.waiting, *finished][-_MOST_WAITING:]
        new = [*finished, *([row] if row else [])]
        self.last_id = max([self.last_id, *(r["id"] for r in new)])
        self._write()

    def taken(self) -> None:
        """The database has what was waiting."""
        self.waiting = []
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        document = {"open": self.open, "waiting": self.waiting, "last_id": self.last_id}
        try:
            replace_volatile(self.path, self.path.with_suffix(".new"), json.dumps(document))
        except OSError as error:
            _log.warning("the running operation is not kept in %s: %s", self.path, error)
