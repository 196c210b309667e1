"""Start of the committed names at boot, or of the hold: a oneshot that runs as root.

The program reads two files that the daemon's user can write, so it trusts nothing in them: bounded
reads, no links, no pipes, names by a fixed rule, units that exist. The result is one
``systemctl start --no-block``, a transaction of its own that wins over stray ``Wants=``.

========================  ==========================================================
``hold``                  starts
========================  ==========================================================
absent, or empty          the names in ``active``
a second that has passed  the names in ``active``
``forever``, a later one  ``appliance-hold.service``
anything else             ``appliance-hold.service``: a damaged hold is still a hold
========================  ==========================================================
"""

from __future__ import annotations

import os
import sys
import time

from appliance.launch.program import ERROR, EX_USAGE, INFO, WARNING, Options, UsageError, say
from appliance.model.names import HOLD_UNIT, is_profile_name, unit_of
from appliance.model.paths import STATE_DIR, UNIT_DIR
from appliance.system.files.regular import UntrustedFileError, read_untrusted_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAGS = ("state-dir", "unit-dir", "systemctl")
_MAX_BYTES = 64 << 10
_MAX_NAMES = 64
_SHOWN_CHARACTERS = 60


def read_lines(path: str) -> list[str]:
    """Return the lines of a small text file, stripped, without empty ones. Raises `UntrustedFileError`."""
    text = read_untrusted_text(path, _MAX_BYTES) or ""
    return [line.strip() for line in text.splitlines() if line.strip()]


def is_held(directory: str, *, now_unix_s: float) -> bool:
    """Tell whether the hold file prevents every start."""
    try:
        lines = read_lines(f"{directory}/hold")
    except UntrustedFileError as error:
        say(WARNING, f"holding, though the hold file is damaged: {error}")
        return True
    if not lines:
        return False
    try:
        until_s = float(lines[0])
    except ValueError:
        return True
    # A comparison with NaN is false, so that NaN is a hold without an end.
    return not until_s <= now_unix_s


def committed_units(directory: str, unit_directory: str) -> list[str]:
    """Return the units of the committed names that are valid and installed, in the file's order."""
    try:
        lines = read_lines(f"{directory}/active")
    except UntrustedFileError as error:
        say(ERROR, f"nothing is started, the committed names are damaged: {error}")
        return []
    units: list[str] = []
    for name in dict.fromkeys(lines[:_MAX_NAMES]):
        if not is_profile_name(name):
            say(WARNING, f"not a profile's name: {name[:_SHOWN_CHARACTERS]!r}")
        elif not os.path.isfile(f"{unit_directory}/{unit_of(name)}"):
            say(WARNING, f"{name} is committed but has no unit: appliance uncommit {name}")
        else:
            units.append(unit_of(name))
    return units


def main(argv: Sequence[str]) -> int:
    """Decide, and execute ``systemctl start``; returns when there is nothing to start."""
    try:
        options = Options(argv, _FLAGS)
        state = options.text("state-dir", STATE_DIR)
        unit_directory = options.text("unit-dir", UNIT_DIR)
        systemctl = options.text("systemctl", "/usr/bin/systemctl")
    except UsageError as error:
        say(ERROR, f"boot: {error}")
        return EX_USAGE
    held = is_held(state, now_unix_s=time.time())
    units = [HOLD_UNIT] if held else committed_units(state, unit_directory)
    if not units:
        say(INFO, "nothing is committed")
        return 0
    say(INFO, f"starting {' '.join(units)}")
    try:
        os.execv(systemctl, [systemctl, "start", "--no-block", *units])  # noqa: S606
    except OSError as error:
        say(ERROR, f"{systemctl}: {error.strerror}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
