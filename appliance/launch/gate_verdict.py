"""The gate's last word about a profile, left behind as one small JSON file.

The daemon shows its sentence to people. It stands until the gate speaks again: a start that is
admitted at once removes it.

============  ================================================================
``refused``   a rival holds the claim, or the machine is too small
``late``      memory is not back
``admitted``  it was, after a wait: from how much to how much was held meanwhile
============  ================================================================
"""

from __future__ import annotations

import os
import time

REFUSED = "refused"
LATE = "late"
ADMITTED = "admitted"
_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755


def clear(directory: str, name: str) -> None:
    """Remove an old word. Never raises: a stale sentence must not stop a model."""
    try:
        os.unlink(f"{directory}/{name}.json")
    except OSError:
        return


def write(directory: str, name: str, *, verdict: str, reason: str, **figures: float) -> None:
    """Replace the word about profile `name`, whole or not at all. Raises OSError.

    Args:
        directory: Where the words are; made when missing.
        name: The profile.
        verdict: ``refused``, ``late`` or ``admitted``.
        reason: One sentence that names the holders; of an admission what was waited for.
        figures: More to tell, with units in the names.
    """
    import json  # noqa: PLC0415

    document = {
        "verdict": verdict,
        "reason": reason,
        "unix_s": time.time(),
        "invocation_id": os.environ.get("INVOCATION_ID", ""),
        **figures,
    }
    os.makedirs(directory, mode=_DIRECTORY_MODE, exist_ok=True)
    temporary = f"{directory}/.{name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, _FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, _FILE_MODE)  # whatever the umask: the daemon must read it
        file.write(json.dumps(document) + "\n")
    os.replace(temporary, f"{directory}/{name}.json")
