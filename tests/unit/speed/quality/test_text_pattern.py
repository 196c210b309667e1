"""The search for a regular expression in linear time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.speed.quality.text_pattern import PatternError, compile_pattern

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
        pattern = compile_pattern(expression)
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
    assert compile_pattern(expression).is_in(text) is found


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("(a", r'"\(" without'),
        ("a)", r'"\)" without'),
        ("[a", r'"\[" without'),
        ("[^", r'"\[" without'),
        ("*a", "nothing to repeat"),
        ("a**", "nothing to repeat"),
        ("a{2}{3}", "nothing to repeat"),
        ("a{x}", "begins {m}"),
        ("a{2", "begins {m}"),
        ("a{3,2}", "is no range"),
        ("[b-a]", "is no range"),
        (r"[a-\d]", "is no range"),
        (r"\b", "is not known here"),
        ("a\\", "is not known here"),
        ("(?=a)", r"only \(\?: \) is known"),
        ("(a){200}", "more than 200 steps"),
        ("(()){150}(()){150}", "more than 200 steps"),
        ("((a?){150}){150}", "more than 200 steps"),
        ("(" * 21 + ")" * 21, "nested more than 20 deep"),
        ("a" * 501, "longer than 500"),
    ],
)
def test_refused(expression: str, text: str) -> None:
    """A malformed, too long or too costly expression is refused with the reason."""
    with pytest.raises(PatternError, match=text):
        compile_pattern(expression)


def test_steps_are_forgotten() -> None:
    """Steps that are remembered stay bounded, and a search goes on where they are forgotten."""
    pattern = compile_pattern("x.y")
    text = "".join(chr(0x4E00 + number) for number in range(5000))
    assert not pattern.is_in(text)
    assert pattern.is_in(text + "x" + text[0] + "y")
    assert len(pattern._next) < 4096
