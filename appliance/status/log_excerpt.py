"""Excerpt of an engine's log: the lines that say why a start failed.

Engines print a banner, hundreds of informative lines, one cause, and then its consequences: a
Python traceback from each process that it ended. So lines that name an error are preferred to
the last ones, and of a traceback only the exception is kept. A line that states a level below
ERROR names none, whatever its words.
"""

import re
from collections.abc import Iterable
from typing import Final

from appliance.engines import ENGINES
from appliance.model.plain_text import last_redraw, plain

LINES: Final = 10
"""Number of lines that are shown at most."""
LINES_READ: Final = 1000
"""Newest lines to choose from; a traceback from each of eight workers takes about 500."""
_SHOWN_CHARACTERS: Final = 400
_READ_CHARACTERS: Final = 2000

_PREFIXES: Final = tuple(engine.log_prefixes for engine in ENGINES.values())


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(filter(None, patterns)))


_PROCESS: Final = _any_of((*(p.process for p in _PREFIXES), r"\[(rank\d+)\]: ?"))
"""Prefixes of processes: those of engines, and ``[rank0]:`` of PyTorch."""
_LEVEL: Final = re.compile(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL):? +"
    r"(?:\d\d-\d\d \d\d:\d\d:\d\d +)?(\[[\w./]+:\d+\])? ?"
)
"""Prefix with a level: ``ERROR 11-22 07:00:01 [core.py:1229]`` of vLLM, ``INFO: `` of uvicorn."""
_STAMP: Final = _any_of(p.stamp for p in _PREFIXES)
_LETTER: Final = _any_of(p.letter for p in _PREFIXES)
_GROUP: Final = re.compile(r" *(?:\| ?|\+ |\+-+)")
"""Left margin of a traceback within an exception group."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_LESSER: Final = frozenset({"DEBUG", "INFO", "WARNING", "D", "I", "W"})
_ERROR: Final = re.compile(
    r"(?:^|[\w.])(?:Error|Exception|Interrupt|Exit)(?::|$)"
    r"|(?i:\b(?:error|fatal|failed|failure|fails|cannot|could not|can't|unable to"
    r"|out of memory|no such file|not found|denied|refused|abort(?:ed|ing)?|assert(?:ion)?"
    r"|panic|segmentation fault|killed|invalid|unsupported|unrecogni[sz]ed|not supported"
    r"|sig(?:kill|segv|abrt|quit))\b)"
)


def excerpt(lines: Iterable[str]) -> tuple[str, ...]:
    """Return at most `LINES` of `lines` that best tell what failed, in their order, none twice.

    The last ones that name an error; where none does, the last ones.
    """
    folded = _folded(lines)
    errors = [text for text, is_error in folded.items() if is_error]
    chosen = errors or list(folded)
    return tuple(_shortened(text) for text in chosen[-LINES:])


def short_line(line: str) -> str:
    """Return one line of an engine's log as plain text, fit for a display of one line."""
    return _shortened(" ".join(_plain(line).split()))


def _folded(lines: Iterable[str]) -> dict[str, bool]:
    """Return texts without tracebacks and prefixes, and whether each names an error."""
    found: dict[str, bool] = {}
    unwinding: set[str] = set()
    for line in lines:
        speaker, level, text = _parted(line)
        if _TRACEBACK in text:
            unwinding.add(speaker)
            continue
        if speaker in unwinding:
            # Processes write at the same time: each has a traceback of its own.
            if not text or text[0] in " \t":
                continue
            unwinding.discard(speaker)
            level = "ERROR"
        if text := text.strip():
            is_error = level not in _LESSER and (level == "CRITICAL" or _names_error(level, text))
            found[text] = found.get(text, False) or is_error
    return found


def _names_error(level: str, text: str) -> bool:
    return level in {"ERROR", "E"} or _ERROR.search(text) is not None


def _parted(line: str) -> tuple[str, str, str]:
    """Return a line's process, its level (empty: none is stated) and its text."""
    text = _plain(line).rstrip()
    speaker = level = ""
    if match := _PROCESS.match(text):
        speaker, text = match[match.lastindex or 0], text[match.end() :]
    if match := _STAMP.match(text):
        text = text[match.end() :]
        if match := _LETTER.match(text):
            level, text = match[1], text[match.end() :]
    elif match := _LEVEL.match(text):
        speaker += match[2] or ""
        level, text = match[1], text[match.end() :]
    if match := _GROUP.match(text):
        text = text[match.end() :]
    return speaker, level, text


def _plain(line: str) -> str:
    return plain(last_redraw(line)[:_READ_CHARACTERS])


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
