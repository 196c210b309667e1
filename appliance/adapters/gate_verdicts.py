"""What the gate last said about each profile (`appliance.launch.gate_verdict` writes it)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.adapters.files.regular import read_small_file
from appliance.domain.names import is_profile_name

_ADMITTED: Final = "admitted"
_MOST_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GateWord:
    """One verdict on one start."""

    admitted: bool
    """False: it was refused, or memory was late."""
    reason: str
    """For people: who is in the way; or, of an admission, ``12.1 → 0.4 GiB in 2.3 s``."""


def read_gate_words(directory: Path) -> Mapping[str, GateWord]:
    """The last words in `directory`, by profile; a start that was admitted at once left none."""
    try:
        files = sorted(directory.glob("*.json"))
    except OSError:
        return {}
    words = {file.stem: _word(file) for file in files if is_profile_name(file.stem)}
    return {name: word for name, word in words.items() if word is not None}


def refusals_in(directory: Path) -> Mapping[str, str]:
    """Why the gate last refused a start, by profile; admitted ones are absent."""
    words = read_gate_words(directory)
    return {name: word.reason for name, word in words.items() if not word.admitted}


def admissions_in(directory: Path) -> Mapping[str, str]:
    """What the gate waited for before it last admitted a start, by profile."""
    words = read_gate_words(directory)
    return {name: word.reason for name, word in words.items() if word.admitted}


def _word(file: Path) -> GateWord | None:
    """None: the gate has replaced or removed it meanwhile."""
    try:
        document = json.loads(read_small_file(file, _MOST_BYTES))
        reason = document["reason"]
        admitted = document.get("verdict") == _ADMITTED
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return GateWord(admitted=admitted, reason=reason) if isinstance(reason, str) else None
