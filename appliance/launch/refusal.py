"""What the gate leaves behind when it refuses: one small JSON file a profile.

The daemon shows its sentence to people. A gate that admits removes it.
"""

from __future__ import annotations

import os
import time

DIRECTORY = "/run/appliance-gate"
_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755


def clear(directory: str, name: str) -> None:
    """Remove an old refusal. Never raises: a stale sentence must not stop a model."""
    try:
        os.unlink(f"{directory}/{name}.json")
    except OSError:
        return


def write(directory: str, name: str, *, verdict: str, reason: str) -> None:
    """Replace the refusal of profile `name`, whole or not at all. Raises OSError.

    Args:
        directory: Where refusals are; made when missing.
        name: The profile.
        verdict: ``refused`` (a rival holds the claim) or ``late`` (memory is not back).
        reason: One sentence that names the holders.
    """
    import json  # noqa: PLC0415

    document = {
        "verdict": verdict,
        "reason": reason,
        "unix_s": time.time(),
        "invocation_id": os.environ.get("INVOCATION_ID", ""),
    }
    os.makedirs(directory, mode=_DIRECTORY_MODE, exist_ok=True)
    temporary = f"{directory}/.{name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, _FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, _FILE_MODE)  # whatever the umask: the daemon must read it
        file.write(json.dumps(document) + "\n")
    os.replace(temporary, f"{directory}/{name}.json")
