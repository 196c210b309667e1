"""Reads what the supervisor has seen a profile take. Nothing in that file is trusted.

The gate is root and the file is a service user's::

    {"format": 1, "fingerprint": "…", "gpus": {"GPU-…": 21474836480}, "ram_bytes": 4294967296,
     "peak": {"gpus": {"GPU-…": 20401094656}, "ram_bytes": 3758096384}, "seen_unix_s": …}

``gpus`` and ``ram_bytes`` are what to keep free, ``peak`` is what was seen. A file that is a link,
a pipe, too large, or says what cannot be, is as good as none. Whatever it says can at most let a
start go ahead too early, or have it wait in vain for a GPU without a byte in use.
"""

from __future__ import annotations

from appliance.launch.demand import Seen
from appliance.launch.regular_files import Unreadable, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1
_MAX_BYTES = 64 << 10
_MAX_GPUS = 64
_MAX_UUID_CHARACTERS = 128
_MOST_BYTES = 1 << 50


class _Malformed(Exception):  # noqa: N818
    """It says what cannot be."""


def read(path: str, fingerprint: str) -> Seen | None:
    """What was seen of the configuration `fingerprint`; None: nothing that could be believed."""
    try:
        text = read_text(path, _MAX_BYTES)
        return _seen(_parsed(text), fingerprint) if text and fingerprint else None
    # Nesting without end, or digits without end, are errors of the parser's own.
    except (Unreadable, _Malformed, ValueError, StopIteration, RecursionError):
        return None


class _Grammar:
    """What the interpreter's own JSON scanner wants to know of its caller."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012


def _parsed(text: str) -> Any:
    """The JSON value of `text`: the module `json` takes 5 ms to import, its scanner none."""
    try:
        from _json import make_scanner  # noqa: PLC0415
    except ImportError:  # another interpreter than CPython
        import json  # noqa: PLC0415

        return json.loads(text)
    grammar: Any = _Grammar
    value, _ = make_scanner(grammar)(text.strip(), 0)
    return value


def _seen(document: Any, fingerprint: str) -> Seen | None:
    top = _object(document)
    if top.get("format") != FORMAT or top.get("fingerprint") != fingerprint:
        return None
    peak = _object(top.get("peak") or {})
    gpus, gpu_peaks = _sizes(top.get("gpus")), _sizes(peak.get("gpus") or {})
    ram, ram_peak = _optional_size(top.get("ram_bytes")), _optional_size(peak.get("ram_bytes"))
    if any(gpus.get(uuid, -1) < held for uuid, held in gpu_peaks.items()):
        raise _Malformed
    if ram_peak is not None and (ram is None or ram < ram_peak):
        raise _Malformed
    return Seen(gpus=gpus, gpu_peaks=gpu_peaks, ram=ram, ram_peak=ram_peak)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Malformed
    return value


def _sizes(value: Any) -> dict[str, int]:
    sizes = _object(value)
    if len(sizes) > _MAX_GPUS or any(len(uuid) > _MAX_UUID_CHARACTERS for uuid in sizes):
        raise _Malformed
    return {uuid: _size(size) for uuid, size in sizes.items()}


def _optional_size(value: Any) -> int | None:
    return None if value is None else _size(value)


def _size(value: Any) -> int:
    # A bool is an int to Python, and no size.
    if type(value) is not int or not 0 <= value <= _MOST_BYTES:
        raise _Malformed
    return value
