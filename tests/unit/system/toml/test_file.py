"""Lines on which the keys of a document are."""

import pytest

from appliance.model.spec import Where
from appliance.system.toml.file import key_lines


@pytest.mark.parametrize(
    ("text", "where", "line"),
    [
        ("a = 1\nb = 2\n", ("b",), 2),
        ("# x\n\n[t]\na = 1\n", ("t", "a"), 4),
        ("# x\n\n[t]\na = 1\n", ("t",), 3),
        ('["t-u"]\n"a b" = 1\n', ("t-u", "a b"), 2),
        ('[x]\n"a\\u0062" = 1\n', ("x", "ab"), 2),
        ("a.b.c = 1\n", ("a", "b"), 1),
        ("a = { b = 1, c = { d = 2 } }\n", ("a", "c", "d"), 1),
        ("a = [\n1,\n{ b = 2 },\n]\n", ("a", 1, "b"), 3),
        ('a = """\nb = 1\n"""\nc = 1\n', ("c",), 4),
        ("a = '''\n[b]\n'''\n[c]\n", ("c",), 4),
        ('a = "[b]" # [c]\nd = 1\n', ("d",), 2),
        ('a = "\\"#" # x\nd = 1\n', ("d",), 2),
        ("a = 1.5\nb = 1979-05-27 07:32:00\nc = +1e3\n", ("c",), 3),
        ("a = 07:32:00.5\nc = -inf\nd = 1\n", ("d",), 3),
        ("[[a]]\nb = 1\n[[a]]\nb = 2\n", ("a", 0, "b"), 2),
        ("[[a]]\nb = 1\n[[a]]\nb = 2\n", ("a", 1, "b"), 4),
        ("[[a.b]]\n[[a.c]]\n[[a.b]]\n", ("a", "b", 1), 3),
        ("a = []\nb = [[], [1]]\n", ("b", 1, 0), 2),
    ],
)
def test_a_key_is_found_on_its_line(text: str, where: Where, line: int) -> None:
    """Keys are found in tables, dotted, quoted, inline, and after text that looks like keys."""
    assert key_lines(text)[where] == line


@pytest.mark.parametrize("text", ["", "a", "a =", "a = [", "a = {", "[", "= 1", '"', "a = { b"])
def test_a_torn_document_ends_quietly(text: str) -> None:
    """Lines can be asked for of any text: tomllib is the judge of what is valid."""
    assert isinstance(key_lines(text), dict)
