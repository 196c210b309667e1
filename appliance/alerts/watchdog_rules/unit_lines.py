"""Lines of a unit's difference, fit for a message: settings with values that may be secret lose them."""

import re
from typing import Final

_ASSIGNMENT: Final = re.compile(r"([+\- ]?\s{0,8})([A-Za-z][A-Za-z0-9]{0,63})\s{0,8}=")
_SECTION: Final = re.compile(r"[+\- ]?\s{0,8}\[[A-Za-z]{1,32}\]\s{0,8}\Z")
_MAY_BE_SECRET: Final = frozenset({"environment", "setcredential", "setcredentialencrypted"})
_COMMANDS: Final = "exec"
"""Beginning of the settings with command lines: an argument may be a key."""
_HIDDEN: Final = "…"


def without_secrets(line: str) -> str:
    """Return a line without the values of commands and environments, or of a line that continues one."""
    found = _ASSIGNMENT.match(line)
    if found is None:
        sign = line[:1] if line[:1] in {"+", "-"} else ""
        return line if _SECTION.match(line) else f"{sign}{_HIDDEN}"
    name = found[2].lower()
    if name in _MAY_BE_SECRET or name.startswith(_COMMANDS):
        return f"{found[1]}{found[2]}={_HIDDEN}"
    return line
