"""Observed peak of a backend's memory, and the file that keeps it.

The supervisor writes a file a profile, ``needs/NAME.json``; supervisor, command line and gate read
it::

    {"format": 1, "fingerprint": "…", "seen_unix_s": 1700000000.0,
     "peak": {"gpus": {"GPU-…": 19327352832}, "ram_bytes": 2147483648}}

The gate is root and the file is a service user's. A text that is no such document, or has
impossible figures, counts as none. Whatever it says can at most let a start go ahead too early, or have
it wait in vain for a GPU without a byte in use.
"""

from __future__ import annotations

from appliance.model.json_reader import decode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ALLOWANCE_SHARE = 0.05
ALLOWANCE_BYTES = 512 << 20
"""Allowance above an observed peak; the larger of the two is added, because no two runs are
equal."""
FORMAT = 1
MOST_FILE_BYTES = 64 << 10
_MOST_BYTES = 1 << 50
_MOST_GPUS = 64
_LONGEST = 128
_LATEST_S = 1e12


def with_allowance(peak_bytes: int) -> int:
    """Return what to keep free for a backend that was seen to hold `peak_bytes`."""
    return peak_bytes + max(int(peak_bytes * ALLOWANCE_SHARE), ALLOWANCE_BYTES)


class ObservedPeak:
    """Largest memory that a backend was seen to hold; an object never changes."""

    __slots__ = ("fingerprint", "gpus", "ram_bytes", "seen_unix_s")

    def __init__(
        self,
        *,
        fingerprint: str,
        gpus: Mapping[str, int] | None = None,
        ram_bytes: int | None = None,
        seen_unix_s: float = 0.0,
    ) -> None:
        self.fingerprint = fingerprint
        """Fingerprint of the configuration that ran (`Applied.fingerprint`); it says nothing about
        another."""
        self.gpus = gpus or {}
        """Bytes by the UUID of the GPU."""
        self.ram_bytes = ram_bytes
        """Bytes of main memory of all processes of the backend together; None: not seen."""
        self.seen_unix_s = seen_unix_s

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObservedPeak) and self._fields() == other._fields()

    __hash__ = None  # type: ignore[assignment]  # it holds a mapping

    def __repr__(self) -> str:
        return f"ObservedPeak{self._fields()}"

    def _fields(self) -> tuple[object, ...]:
        return (self.fingerprint, dict(self.gpus), self.ram_bytes, self.seen_unix_s)

    def of(self, fingerprint: str) -> ObservedPeak | None:
        """Return the peak if configuration `fingerprint` was seen to hold it; empty: none was."""
        return self if fingerprint and self.fingerprint == fingerprint else None


def encoded(peak: ObservedPeak) -> str:
    """Return the text of the file."""
    import json  # noqa: PLC0415 - 5 ms that the gate, which only reads, does not pay

    document = {
        "format": FORMAT,
        "fingerprint": peak.fingerprint,
        "seen_unix_s": peak.seen_unix_s,
        "peak": {"gpus": dict(peak.gpus), "ram_bytes": peak.ram_bytes},
    }
    return json.dumps(document, indent=1) + "\n"


def decoded(text: str) -> ObservedPeak | None:
    """Return the peak in the text of a file; None: no document of this format, or impossible figures."""
    try:
        return _peak(decode_json(text))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _peak(document: Any) -> ObservedPeak:
    """Return the peak of a document. Raises the errors that `decoded` catches."""
    if document["format"] != FORMAT:
        raise ValueError("another format")
    peak, seen = document["peak"], document["seen_unix_s"]
    gpus = _object(peak["gpus"])
    ram = peak["ram_bytes"]
    if len(gpus) > _MOST_GPUS or type(seen) not in (int, float) or not 0 <= seen < _LATEST_S:
        raise ValueError("no record of ours")
    return ObservedPeak(
        fingerprint=_text(document["fingerprint"]),
        gpus={_text(uuid): _size(held) for uuid, held in gpus.items()},
        ram_bytes=None if ram is None else _size(ram),
        seen_unix_s=float(seen),
    )


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("no object")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > _LONGEST or not value.isprintable():
        raise ValueError("no name")
    return value


def _size(value: Any) -> int:
    # A bool is an int to Python, and no size.
    if type(value) is not int or not 0 <= value < _MOST_BYTES:
        raise ValueError("no size")
    return value
