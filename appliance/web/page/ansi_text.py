"""Log lines with colours of a terminal (ECMA-48 SGR) as spans with classes.

Only colours, bold and dim are kept; every other escape sequence and control character is taken out. One pass
over at most `MOST_CHARACTERS` of a line, and at most `MOST_SPANS` spans: what is longer is cut.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

MOST_CHARACTERS: Final = 2000
MOST_SPANS: Final = 100
_COLOURS: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_BY_CODE: Final = {
    f"{base}{digit}": name for base in ("3", "9") for digit, name in enumerate(_COLOURS)
}
_SEQUENCE: Final = re.compile(
    r"\x1b\[([0-9;]{0,40})m"  # SGR, kept
    r"|\x1b\[[0-?]{0,40}[ -/]{0,8}[@-~]"  # other control sequences
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # strings for the terminal, as titles and links
    r"|\x1b."
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"  # controls, and turns of direction
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSpan:
    """Piece of a line in one style."""

    text: str
    classes: str = ""
    """Names of classes of the style sheet, such as ``ansi-red ansi-bold``; empty: plain."""


@dataclass(slots=True)
class _Pen:
    colour: str = ""
    weight: str = ""

    @property
    def classes(self) -> str:
        return " ".join(f"ansi-{part}" for part in (self.colour, self.weight) if part)

    def take(self, parameters: str) -> None:
        """Follow the parameters of one SGR sequence; colours by number are passed over."""
        codes = iter(parameters.split(";"))
        for code in codes:
            match code.lstrip("0"):
                case "":
                    self.colour = self.weight = ""
                case "1":
                    self.weight = "bold"
                case "2":
                    self.weight = "dim"
                case "22":
                    self.weight = ""
                case "39":
                    self.colour = ""
                case "38" | "48":
                    _skip_colour(codes)
                case number:
                    self.colour = _BY_CODE.get(number, self.colour)


def _skip_colour(codes: Iterator[str]) -> None:
    """Pass over the rest of a colour by index (``5;n``) or by its parts (``2;r;g;b``)."""
    rest = {"5": 1, "2": 3}.get(next(codes, ""), 0)
    for _ in range(rest):
        next(codes, None)


def ansi_spans(line: str) -> tuple[TextSpan, ...]:
    """Return the spans of one line; what is left out of a long one is told by an ellipsis."""
    cut = line[:MOST_CHARACTERS]
    pen, spans, at = _Pen(), list[TextSpan](), 0
    for match in _SEQUENCE.finditer(cut):
        _append(spans, cut[at : match.start()], pen)
        at = match.end()
        if match[1] is not None:
            pen.take(match[1])
    _append(spans, cut[at:], pen)
    kept = spans[:MOST_SPANS]
    if len(cut) < len(line) or len(kept) < len(spans):
        kept.append(TextSpan(text="…"))
    return tuple(kept)


def _append(spans: list[TextSpan], text: str, pen: _Pen) -> None:
    if not text:
        return
    if spans and spans[-1].classes == pen.classes:
        spans[-1] = TextSpan(text=spans[-1].text + text, classes=pen.classes)
    elif len(spans) <= MOST_SPANS:
        spans.append(TextSpan(text=text, classes=pen.classes))


def log_view(lines: Iterable[str]) -> tuple[tuple[TextSpan, ...], ...]:
    """Return the spans of each line."""
    return tuple(ansi_spans(line) for line in lines)
