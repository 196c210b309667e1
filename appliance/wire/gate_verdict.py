"""Verdict of the gate on a profile's last start, for the supervisor: a JSON file a profile.

It stands until the gate decides again; an admission without a wait leaves none.

============  ================================================================
``refused``   a rival holds the claim, or the machine is too small
``late``      memory or port are not back
``admitted``  after a wait for memory or port
============  ================================================================
"""

from __future__ import annotations

from appliance.model.json_reader import decode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

REFUSED = "refused"
LATE = "late"
ADMITTED = "admitted"
SUFFIX = ".json"
MAX_BYTES = 64 << 10
"""Largest file in bytes."""
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError)


class GateVerdict:
    """Verdict of the gate on one start."""

    __slots__ = ("admitted", "reason")

    def __init__(self, *, admitted: bool, reason: str) -> None:
        self.admitted = admitted
        """Whether the start was admitted; False: refused, or memory or port were late."""
        self.reason = reason
        """Reason for people: the holders of the claim or memory; or, of an admission, ``12.1 → 0.4
        GiB in 2.3 s``, ``port 9103 free after 12.4 s``."""


def file_of(directory: str, profile: str) -> str:
    """Return the path of a profile's verdict."""
    return f"{directory}/{profile}{SUFFIX}"


def encoded(
    verdict: str, reason: str, *, unix_s: float, invocation_id: str, figures: Mapping[str, float]
) -> str:
    """Return the text of a file.

    Args:
        verdict: ``refused``, ``late`` or ``admitted``.
        reason: One sentence that names the holders; of an admission what was waited for.
        unix_s: When.
        invocation_id: systemd's, of the start.
        figures: More for programs, with units in the names.
    """
    import json  # noqa: PLC0415 - 5 ms that an admission without a wait does not pay

    document = {
        "verdict": verdict,
        "reason": reason,
        "unix_s": unix_s,
        "invocation_id": invocation_id,
        **figures,
    }
    return json.dumps(document) + "\n"


def decoded(content: str | bytes) -> GateVerdict | None:
    """Return the verdict in a file's content; None: it is damaged."""
    try:
        document = decode_json(content)
        reason = document["reason"]
        admitted = document.get("verdict") == ADMITTED
    except _DAMAGE:
        return None
    return GateVerdict(admitted=admitted, reason=reason) if isinstance(reason, str) else None
