"""Prose of the code: docstrings name their subject, and no text speaks in riddles."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT_NOUN = re.compile(
    r"[\W_]*(All|Every(?:body|one|thing)|He|Her|His|How|Its?|No(?:body|thing)|She|So|Some(?:body|one|thing)"
    r"|Such|That|Their|Them|There|These|They|This|Those|What(?:ever)?|Which|Who(?:ever|m|se)?|Why)\b"
)
RIDDLES = re.compile(
    r"\b(?:[Aa]ll is said|behind your back|[Hh]ang up on|as good as none|[Ii]t babbles|It is gone"
    r"|[Mm]eans? ill|the front (?:ends|holds)|[Tt]here will be no answer|word of the moment)\b"
)


def sources() -> Iterator[Path]:
    for folder in ("appliance", "scripts", "tests"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring, those of attributes included."""
    for node in ast.walk(ast.parse(source)):
        statements = getattr(node, "body", ())
        for statement in statements if isinstance(statements, list) else ():
            value = getattr(statement, "value", None) if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value


def faults(source: str) -> list[str]:
    found = []
    for line, text in docstrings(source):
        if first := WITHOUT_NOUN.match(text):
            found.append(
                f'{line}: begins with "{first[1]}": begin with the subject or an imperative'
            )
        if riddle := RIDDLES.search(text):
            found.append(f'{line}: "{riddle[0]}": say what is meant')
    return found


def test_docstrings_name_their_subject() -> None:
    """No docstring begins with a pronoun or a question word, or has a phrase of the list."""
    found = [f"{p.relative_to(ROOT)}:{f}" for p in sources() for f in faults(p.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""What is told."""', 'begins with "What"'),
        ('class A:\n    """``x``"""\n    b: int\n    """It."""', 'begins with "It"'),
        ('def f():\n    """Tell.\n\n    It is gone.\n    """', '"It is gone"'),
        ('"""Parser."""\ndef f():\n    """Whether it ends."""', ""),
    ],
)
def test_a_fault_is_found(source: str, expected: str) -> None:
    """A docstring of a module, function or attribute is read; another one is accepted."""
    assert expected in "\n".join(faults(source))
    assert bool(faults(source)) == bool(expected)
