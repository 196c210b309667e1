"""File of the targets' names, kinds and least severities, below `APPLIED_DIR`; it holds no secret.

`appliance target` writes it beside the file of the targets, and the health agent reads it: the targets are
known without the notifier.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from appliance.model.json_reader import decode_json
from appliance.model.targets import TargetStanding
from appliance.system.files.regular import CachedFile
from appliance.wire.typed_json import from_json

_log = logging.getLogger(__name__)

_MOST_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _TargetNames:
    targets: tuple[TargetStanding, ...] = ()


def target_names_text(targets: Sequence[TargetStanding]) -> str:
    """Return the text of the file."""
    return json.dumps(asdict(_TargetNames(targets=tuple(targets))), indent=1) + "\n"


class TargetNamesFile:
    """Reader of the file.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = CachedFile(path, _MOST_BYTES)
        self._targets: Sequence[TargetStanding] = ()
        self.trouble = ""
        """Sentence about why the targets are not known; empty: they are."""

    def targets(self) -> Sequence[TargetStanding]:
        """Return the targets; none where there is no file, those read last where it is damaged."""
        try:
            self._targets = from_json(_TargetNames, decode_json(self._file.content())).targets
            self.trouble = ""
        except FileNotFoundError:
            self._targets, self.trouble = (), ""
        except (OSError, ValueError) as error:
            trouble = f"{self.path} cannot be read ({error}): appliance target ls"
            if trouble != self.trouble:
                _log.error("%s", trouble)
            self.trouble = trouble
        return self._targets
