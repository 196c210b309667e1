"""Colours of log lines."""

import time

import pytest

from appliance.web.page.ansi_text import MOST_CHARACTERS, MOST_SPANS, TextSpan, ansi_spans


def span(text: str, classes: str = "") -> TextSpan:
    return TextSpan(text=text, classes=classes)


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        ("plain", [span("plain")]),
        ("", []),
        ("\x1b[32mINFO\x1b[0m x", [span("INFO", "ansi-green"), span(" x")]),
        (
            "\x1b[1;31mE\x1b[22mf\x1b[mg",
            [span("E", "ansi-red ansi-bold"), span("f", "ansi-red"), span("g")],
        ),
        ("\x1b[93my\x1b[39mz", [span("y", "ansi-yellow"), span("z")]),
        ("\x1b[38;5;196mi\x1b[38;2;1;2;31mt", [span("it")]),
        ("\x1b[01;31mt", [span("t", "ansi-red ansi-bold")]),
        ("a\x1b[2Kb\x1b[10;10Hc", [span("abc")]),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link", [span("alink")]),
        ("a\rb\x00c\x9bd\u202ee", [span("abcde")]),
        ("\x1b[31", [span("31")]),
        ("tab\tstays", [span("tab\tstays")]),
    ],
)
def test_a_line_is_spans(line: str, spans: list[TextSpan]) -> None:
    """Colours become classes; what else a terminal would act on goes."""
    assert list(ansi_spans(line)) == spans


def test_long_lines_are_cut() -> None:
    """A megabyte on one line, of text or of colours, is a bounded number of spans."""
    assert ansi_spans("x" * (1 << 20))[-1] == span("…")
    assert sum(len(one.text) for one in ansi_spans("x" * (1 << 20))) == MOST_CHARACTERS + 1
    many = ansi_spans("\x1b[31ma\x1b[32mb" * 10_000)
    assert len(many) == MOST_SPANS + 1
    assert many[-1] == span("…")


def cpu_s(line: str) -> float:
    """Return the least CPU time of several rounds, which another program's load does not lengthen."""

    def of_one_round() -> float:
        began_s = time.process_time()
        for _ in range(10):
            ansi_spans(line)
        return time.process_time() - began_s

    return min(of_one_round() for _ in range(7))


@pytest.mark.parametrize(
    "piece", ["\x1b[", "\x1b]", "\x1b[1;", "\x1b[" + "1;" * 30, "\x1bP\x1b", "\x1b[?"]
)
def test_unfinished_sequences_take_linear_time(piece: str) -> None:
    """A line of eight times the length takes about eight times the time, and what is cut off a longer one takes none."""
    whole = (piece * MOST_CHARACTERS)[:MOST_CHARACTERS]
    part = whole[: MOST_CHARACTERS // 8]
    assert cpu_s(whole) < 24 * cpu_s(part)
    assert cpu_s(whole * 100) < 2 * cpu_s(whole)
