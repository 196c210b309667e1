"""YAML as texts, lists and tables: no object is made, and a small file cannot stand for a large one."""

import time

import pytest

from appliance.system.yaml_documents import PlainText, YamlFaultError, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: 1", {"a": "1"}),
        (
            "a: 0.90\nb: off\nc: 'x'\nd: ~\ne:",
            {"a": "0.90", "b": "off", "c": "x", "d": None, "e": None},
        ),
        ("- a\n- [b, {c: d}]", ["a", ["b", {"c": "d"}]]),
        ("a: |\n  b\n  c\n", {"a": "b\nc\n"}),
        (
            "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}",
            {"x": {"a": "1", "b": "2"}, "y": {"a": "1", "b": "3"}},
        ),
        (
            "x: &x {a: 1}\nz: &z {a: 2, c: 3}\ny: {<<: [*x, *z, w]}",
            {"x": {"a": "1"}, "z": {"a": "2", "c": "3"}, "y": {"a": "1", "c": "3"}},
        ),
        ("a: &a b\nc: *a", {"a": "b", "c": "b"}),
        ('"<<": x', {"<<": "x"}),
    ],
)
def test_values_stay_texts(text: str, value: object) -> None:
    """Every scalar is the text that it is; anchors and merged tables are read."""
    assert read_yaml(text) == value


def test_plain_scalars_are_told_apart() -> None:
    """A scalar without quotes may be meant as a number; one with quotes is text."""
    document = read_yaml("a: 1\nb: '1'")
    assert isinstance(document["a"], PlainText)
    assert not isinstance(document["b"], PlainText)


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['touch /x']", "!env X", "!include a.yaml"]
)
def test_tags_make_nothing(tag: str) -> None:
    """A tag that another loader would run or open is passed over."""
    assert read_yaml(f"a: {tag}") in ({"a": ["touch /x"]}, {"a": "X"}, {"a": "a.yaml"})


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
MERGES = "a0: &a0 {k0: v}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}], k{n}: v}}\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "has more than 50000 values, aliases counted"),
        (MERGES, "has more than 50000 values, aliases counted"),
        ("- x\n" * 50_001, "has more than 50000 values"),
        ("[" * 100, "line 1: nests deeper than 32 levels"),
        ("a: *b", "line 1: "),
        ("a: 1\n---\nb: 2", "line 2: has more than one document"),
        ("a: [", "line 2: not YAML"),
        ("a: 1\n\tb: 2", "line 2: not YAML"),
        ("{[a]: b}", "a key is a list, a table or nothing"),
        ("a" * (256 * 1024 + 1), "has more than 256 KiB"),
        ("a: \x01", "not YAML"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    """Bombs, depth, size and broken YAML are refused with a word each."""
    with pytest.raises(YamlFaultError) as caught:
        read_yaml(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "piece",
    ["[", "{", "- ", "a: ", "&a ", "*a ", "? ", "'", '"', "|\n", "!", "%", "x,", "a: {", "\n"],
)
def test_time_is_bounded(piece: str) -> None:
    """Thousands of any one thing are read or refused in seconds."""
    # real time: the parser has no clock; a quadratic one would take minutes here.
    started = time.process_time()
    try:
        read_yaml((piece * (64 * 1024))[: 64 * 1024])
    except YamlFaultError:
        outcome = "refused"
    else:
        outcome = "read"
    assert time.process_time() - started < 10, outcome
