"""The search for a regular expression in linear time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.speed.text_pattern import PatternError, TextPattern

_ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\S", "^", "$", "[a-c1]"])
_REPEATS = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,1}", "{2,}", "*?"])


def _joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(parts, parts).map("".join),
        st.tuples(parts, parts).map("|".join),
        st.tuples(parts, _REPEATS).map(lambda both: f"(?:{both[0]}){both[1]}"),
        parts.map(lambda part: f"({part})"),
    )


_EXPRESSIONS = st.recursive(_ATOMS, _joined, max_leaves=8)


@given(_EXPRESSIONS, st.text(alphabet="abc1 \n", max_size=8))
def test_like_re(expression: str, text: str) -> None:
    """An expression is found exactly where `re` finds it, if $ means the end of the whole text."""
    try:
        pattern = TextPattern(expression)
    except PatternError as error:
        assert "steps" in str(error)  # noqa: PT017 - a bound, no fault
        return
    assert pattern.is_in(text) == bool(re.search(expression.replace("$", r"\Z"), text))


@pytest.mark.parametrize(
    ("expression", "text", "found"),
    [
        ("", "", True),
        ("Par[iI]s", "It is PARIS or ParIs.", True),
        ("(?i)paris", "It is PARIS.", True),
        ("(?i)P[A-Z]RIS", "paris", True),
        ("(?i)\\D", "7", False),
        ("^yes$", "yes", True),
        ("^yes$", "yes, no", False),
        ("^$", "a", False),
        ("a$", "ab", False),
        (r"\$\d+\.\d{2}", "costs $12.50", True),
        (r"\$\d+\.\d{2}", "costs $12.5", False),
        ("a\\tb", "a\tb", True),
        ("[]a]", "]", True),
        ("[a-]", "-", True),
        (r"[\d\]]x", "]x", True),
        (r"\W\s", "é ", False),
        ("()*", "", True),
        ("b{1,3}", "abbb", True),
    ],
)
def test_examples(expression: str, text: str, found: bool) -> None:  # noqa: FBT001 - a column
    """The search knows sets, classes, counts, ends and ignored case."""
    assert TextPattern(expression).is_in(text) is found


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("(a", r"missing \)"),
        ("a)", r"unexpected \)"),
        ("[a", r"missing \]"),
        ("[^", r"missing \]"),
        ("*a", "no argument for repetition operator"),
        ("a**", "bad repetition operator"),
        ("a{2}{3}", "bad repetition operator"),
        ("a{x}", "begins {m}"),
        ("a{2", "begins {m}"),
        ("a{,2}", "begins {m}"),
        ("a{3,2}", "invalid repetition size"),
        ("[b-a]", "invalid character class range"),
        (r"[a-\d]", "invalid"),
        (r"\b", "is not known here"),
        (r"[\b]", "is not known here"),
        (r"\u00e9", "is not known here"),
        ("a\\", "is not known here"),
        ("(?=a)", r"only \(\?: \) is known"),
        ("(?P<a>a)", r"only \(\?: \) is known"),
        ("a(?i)", r"only \(\?: \) is known"),
        ("((a?){150}){150}", "invalid repetition size"),
        (r"\W{1000}" * 8, "pattern too large"),
        ("a" * 501, "longer than 500"),
    ],
)
def test_refused(expression: str, text: str) -> None:
    """A malformed, too long or too costly expression is refused with the reason."""
    with pytest.raises(PatternError, match=text):
        TextPattern(expression)


@pytest.mark.parametrize(
    ("expression", "inside", "outside"),
    [
        (r"\d", "7٣", "x²_"),
        (r"\w", "aé漢٣²_", " -€\u203f"),
        (r"\s", " \t\n\x1c\x85\u3000", "a\u200b"),
    ],
)
def test_classes_are_those_of_unicode(expression: str, inside: str, outside: str) -> None:
    """Digits, letters and blanks of any script count, in a set and outside of one, and in opposites."""
    opposite = expression.upper()
    for form in (expression, f"[{expression}]", f"[^{opposite}]", f"[^{opposite}#]"):
        assert all(TextPattern(form).is_in(character) for character in inside)
        assert not any(TextPattern(form).is_in(character) for character in outside)
    for form in (opposite, f"[{opposite}]", f"[^{expression}]", f"[{opposite}7]"):
        assert all(TextPattern(form).is_in(character) for character in outside)


@pytest.mark.parametrize(
    ("expression", "found"),
    [("[[:alpha:]]", "a]"), (r"[\.-z]", "-"), (r"[\d-z]", "-"), (r"\€", "€")],
)
def test_what_re2_would_read_otherwise(expression: str, found: str) -> None:
    """Brackets and escapes in a set are literals, as for `re`, and so is an escaped sign of any script."""
    assert TextPattern(expression).is_in(found)
    assert not TextPattern(expression).is_in("e")


def test_lone_surrogates_match_as_one_character() -> None:
    """A text that JSON can have and UTF-8 cannot is searched."""
    assert TextPattern("^a.b$").is_in("a\ud800b")
    assert not TextPattern("a").is_in("\udfff")


def test_a_costly_expression_is_searched_in_time() -> None:
    """Nested repetitions take no exponential time."""
    assert not TextPattern("((a|a)+)+$").is_in("a" * 100_000 + "b")
