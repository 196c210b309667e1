"""Report of patches: which of them a text says are applied.

Proof of an expectation is a line that contains it and says that it was applied; of several lines the
last one counts.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_APPLIED = re.compile(r"\bapplied\b", re.IGNORECASE)
_DENIED = re.compile(
    r"\b(?:not|never|cannot|un(?:able|applied)|skipp(?:ed|ing)|fail(?:s|ed|ure)?|missing"
    r"|reverted|could|would|will|to be|error)\b|n't\b|\b(?:0|no|none)(?: \w+)? applied\b"
    r"|\bapplied\s*[:=]\s*(?:false|no|none|0)\b",
    re.IGNORECASE,
)
_NOTHING_WRONG = re.compile(
    r"\b(?:0|no|none|without(?: any)?) (?:skipped|failed|failures?|errors?|missing)\b"
    r"|\b(?:skipped|failed|failures|errors|missing)\s*[:=]\s*0\b",
    re.IGNORECASE,
)


def missing(lines: Iterable[str], expected: Sequence[str]) -> list[str]:
    """Return the expectations that `lines` do not report as applied, in their own order."""
    found = verdicts(lines, expected)
    return [text for text in expected if not found.get(text, False)]


def verdicts(lines: Iterable[str], expected: Sequence[str]) -> Mapping[str, bool]:
    """Return for each expectation that `lines` mention whether they report it as applied."""
    found: dict[str, bool] = {}
    for line in lines:
        for text in expected:
            verdict = _verdict(line, text) if text in line else None
            if verdict is not None:
                found[text] = verdict
    return found


def _verdict(line: str, expectation: str) -> bool | None:
    """Tell whether a line reports the expectation as applied; None: the line does not mention it."""
    # "P4" must not be found in "P40"; words in a patch's name are no report.
    found = re.search(rf"(?<!\w){re.escape(expectation)}(?!\w)", line)
    if found is None:
        return None
    rest = _NOTHING_WRONG.sub(" ", f"{line[: found.start()]} {line[found.end() :]}")
    if _DENIED.search(rest):
        return False
    return True if _APPLIED.search(rest) else None
