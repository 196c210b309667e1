"""Regular expressions of the whole tree: none can go back over the same text again and again."""

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import appliance
from tests.growth.expressions import faults

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"


KNOWN = {
    "appliance.routing.json_scanner._between": "nothing follows, so nothing can fail",
    "appliance.routing.json_scanner._text": "nothing follows, so nothing can fail",
}
"""Expressions that could take their text in two ways, with the reason why they never try."""


def expressions() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes]]]:
    """Every compiled expression that a module keeps, by its place."""
    for found in pkgutil.walk_packages(appliance.__path__, "appliance."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                # Of `re.compile(…).match` too.
                pattern = getattr(value, "__self__", value)
                if isinstance(pattern, re.Pattern):
                    yield f"{found.name}.{name}", pattern


def test_no_expression_goes_back_over_its_text() -> None:
    """Each takes its text in one way only, wherever what follows fails."""
    found = {place: faults(pattern) for place, pattern in expressions()}
    assert len(found) > 40
    assert {place: why for place, why in found.items() if why and place not in KNOWN} == {}
    assert [place for place in KNOWN if not found[place]] == []


@pytest.mark.parametrize(
    "slow",
    [
        rf"({_WORD}):[ \t]*([^\r\n\x00]*?)[ \t]*\Z",
        r"[ \t]*[ ]*x",
        r"\s+.*x",
        r"a*b?a*c",
        r"(a*)*b",
        r"(?:a+)+b",
        r"(?:a|[ab]b)*c",
        r"(?:a|b+c?)*d",
        r"(?:\w+\s*)+:",
        r".*a.*b.*c",
        rb"[ab]{0,500}[bc]{0,500}d",
    ],
)
def test_a_slow_expression_is_found(slow: str | bytes) -> None:
    """The one that ended the gateway, and others of its kind."""
    assert faults(re.compile(slow))


@pytest.mark.parametrize(
    "quick",
    [
        rf"({_WORD}):([^\r\n\x00]*)\Z",
        r"[ \t]*;[ \t]*(a+)=",
        r'"(?:[^"\\]|\\.)*"',
        r"(?:/[a-z]+)+",
        r"a*+a*b",
        r"(?>.*?a)(?>.*?b)x",
        r"\d+\.\d+x",
        r"[ab]{1,9}[bc]{1,9}d",
    ],
)
def test_a_quick_expression_passes(quick: str) -> None:
    """Delimiters, bounds, possessive repetitions and atomic groups."""
    assert faults(re.compile(quick)) == []
