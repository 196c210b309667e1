"""Comparison of what a page shows with what a command prints: figures, times and ids are masked."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

ELISION: Final = "…"
_MASKS: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\x1b\[[0-9;]*m", ""),
        (r"\bap[lt]_[0-9a-f]{8}_[0-9a-f]+…?", "<secret>"),
        (r"\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b", "<id>"),
        (r"\b\d{10,}\b", "<id>"),
        # The same memory, once it was seen.
        (r"\((?:declared|observed)\)", "(<origin>)"),
        (r"\b\d{4}-\d\d-\d\d\b", "<date>"),
        (r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?:\d\d \w{3} )?\d\d:\d\d\b", "<time>"),
        (r"\b\d\d:\d\d(?::\d\d)?\b", "<time>"),
        (r"[▁▂▃▄▅▆▇█]+", "<bars>"),
        (r"\d+(?:\.\d+)? ?(?:ms|s|min|h|d)\b", "<span>"),
        (r"\d+(?:\.\d+)? ?(?:B|[KMGT]i?B)\b", "<size>"),
        (r"[\u2212+±]?\d+(?:\.\d+)? ?%", "<share>"),
        (r"\d+(?:\.\d+)?(?= (?:tok|steps)/s)", "<rate>"),
        (r"\b(pid|operation|uid)(\"?:? ?)\d+\b", r"\1\2<n>"),
        (r"#?\bA\d+\b", "<alert>"),
        (r"(?<=<alert>-)([\w-]+)-\d+(?=\])", r"\1-<n>"),
        # Messages of earlier pages, whose targets are gone.
        (r"(?<=outbox empty), \d+ given up\b", ""),
        # A fast machine has loaded before the first look.
        (r"loading: <size> resident, <span>", "loading"),
        (r"(?<![\d.])\d+\.\d+(?:\.\d+)?(?![\d.])", "<n>"),
        # The width of a column depends on the figures in it.
        (r"(?<=\S)[ \t]+", " "),
    )
)


_PERHAPS: Final = re.compile(r" ✓ (?:back: )?loading ")
"""Line of a phase that a model has passed before the first look, on a fast machine."""


def masked(line: str) -> str:
    """Return a line with a word for each figure, time and id, and single blanks within it."""
    for pattern, name in _MASKS:
        line = pattern.sub(name, line)
    return line.rstrip()


def is_printed(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Tell whether the lines of a page are those that were printed."""
    patterns = [None if line.strip() == ELISION else _pattern(line) for line in _certain(shown)]
    lines = [masked(line) for line in _certain(printed)]
    # Lengths of the printed text that the first patterns may match.
    reached = {0}
    for pattern in patterns:
        if pattern is None:
            reached = set(range(min(reached), len(lines) + 1)) if reached else reached
        else:
            reached = {n + 1 for n in reached if n < len(lines) and pattern.fullmatch(lines[n])}
    return len(lines) in reached


def _certain(lines: Sequence[str]) -> list[str]:
    """Return the lines without those of phases that may be passed unseen."""
    return [line for line in lines if not _PERHAPS.match(line)]


def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in masked(line).split(ELISION)))


def difference(shown: Sequence[str], printed: Sequence[str]) -> Iterator[str]:
    """Yield the lines of both in the form of a diff; lines that are equal but for figures are equal."""
    for tag, begin, end, other, other_end in _opcodes(shown, printed):
        if tag == "equal":
            yield from (f"  {line}" for line in shown[begin:end])
        else:
            yield from (f"- {line}" for line in shown[begin:end])
            yield from (f"+ {line}" for line in printed[other:other_end])


def renewed(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """Return what the page should show: the printed lines, elided as before, with equal lines unchanged."""
    parts: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == ELISION:
            parts.append([])
        else:
            parts[-1].append(line)
    new = list(printed)
    if parts[1:] and len(printed) > len(parts[0]) + len(parts[-1]):
        last = len(printed) - len(parts[-1])
        new = [*printed[: len(parts[0])], ELISION, *printed[last:]]
    result: list[str] = []
    for tag, begin, end, other, other_end in _opcodes(shown, new):
        result += shown[begin:end] if tag == "equal" else map(_shortened, new[other:other_end])
    return result


def _shortened(line: str) -> str:
    """Return a line without the secret in it."""
    return re.sub(r"\b(ap[lt]_[0-9a-f]{8}_[0-9a-f]{6})[0-9a-f]+", r"\1…", line)


def _opcodes(shown: Sequence[str], printed: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    left, right = [masked(line) for line in shown], [masked(line) for line in printed]
    return list(SequenceMatcher(None, left, right, autojunk=False).get_opcodes())
