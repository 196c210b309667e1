"""The most that each backend was seen to hold, a file a profile: ``needs/NAME.json``.

Written by the supervisor, read by it, by the command line and by the gate, which runs as root
and computes nothing: ``gpus`` and ``ram_bytes`` are what it shall find free (a peak and its
allowance), ``peak`` is what was seen::

    {"format": 1, "fingerprint": "…", "seen_unix_s": 1700000000.0,
     "gpus": {"GPU-…": 20401094656}, "ram_bytes": 2684354560,
     "peak": {"gpus": {"GPU-…": 19327352832}, "ram_bytes": 2147483648}}

A file that cannot be read, or says what no machine has, is as if absent.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from appliance.adapters.files.regular import read_small_file
from appliance.domain.names import is_profile_name
from appliance.domain.need import Peak, with_allowance

FORMAT: Final = 1
_MOST_BYTES: Final = 64 << 10
_MOST_MEMORY: Final = 1 << 50
_MOST_GPUS: Final = 64
_LONGEST: Final = 128
_LATEST_S: Final = 1e12
_DISTRUSTED: Final = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def encoded(peak: Peak) -> str:
    """The text of the file."""
    document = {
        "format": FORMAT,
        "fingerprint": peak.fingerprint,
        "seen_unix_s": peak.seen_unix_s,
        "gpus": {uuid: with_allowance(held) for uuid, held in peak.gpus.items()},
        "ram_bytes": None if peak.ram_bytes is None else with_allowance(peak.ram_bytes),
        "peak": {"gpus": dict(peak.gpus), "ram_bytes": peak.ram_bytes},
    }
    return json.dumps(document, indent=1) + "\n"


def read_peak(directory: Path, name: str) -> Peak | None:
    """The peak of profile `name` in a directory of needs; None: none that can be believed."""
    if not is_profile_name(name):
        return None
    try:
        return _parsed(json.loads(read_small_file(directory / f"{name}.json", _MOST_BYTES)))
    except _DISTRUSTED:
        return None


def read_peaks(directory: Path, names: Iterable[str]) -> Mapping[str, Peak]:
    """Those of `names` that have one."""
    found = {name: read_peak(directory, name) for name in names}
    return {name: peak for name, peak in found.items() if peak is not None}


def _parsed(document: Any) -> Peak:
    """Raises any of `_DISTRUSTED`."""
    if document["format"] != FORMAT:
        raise ValueError("another format")
    peak, seen = document["peak"], document["seen_unix_s"]
    gpus = {_text(uuid): _size(held) for uuid, held in peak["gpus"].items()}
    ram = peak["ram_bytes"]
    if len(gpus) > _MOST_GPUS or not isinstance(seen, int | float) or not 0 <= seen < _LATEST_S:
        raise ValueError("no record of ours")
    return Peak(
        fingerprint=_text(document["fingerprint"]),
        gpus=gpus,
        ram_bytes=None if ram is None else _size(ram),
        seen_unix_s=float(seen),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > _LONGEST or not value.isprintable():
        raise ValueError("no name")
    return value


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_MEMORY:
        raise ValueError("no size")
    return value
