"""Reads the most that each backend was seen to hold, a file a profile: ``needs/NAME.json``.

A file that cannot be read, or says what no machine has (`planning.memory.peak`), is as if absent.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from appliance.adapters.files.regular import read_small_file
from appliance.domain.names import is_profile_name
from appliance.planning.memory.peak import MOST_FILE_BYTES, ObservedPeak, decoded


def read_peak(directory: Path, name: str) -> ObservedPeak | None:
    """The peak of profile `name` in a directory of needs; None: none that can be believed."""
    if not is_profile_name(name):
        return None
    try:
        content = read_small_file(directory / f"{name}.json", MOST_FILE_BYTES)
        return decoded(content.decode("ascii"))
    except (OSError, UnicodeDecodeError):
        return None


def read_peaks(directory: Path, names: Iterable[str]) -> Mapping[str, ObservedPeak]:
    """Those of `names` that have one."""
    found = {name: read_peak(directory, name) for name in names}
    return {name: peak for name, peak in found.items() if peak is not None}
